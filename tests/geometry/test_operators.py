"""L and its inverse: golden numbers, the formulas in float64, and what no input may break."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.geometry import momentum, velocity
from tests import reference
from tests.conftest import relative_error

PENALTY = (0.001, 0.02, 4.0, 0.3, 0.5)
spaces = st.one_of(
    st.tuples(*[st.integers(1, 9)] * 2),
    st.tuples(*[st.integers(1, 7)] * 3).filter(lambda space: space[0] != 2),
)
penalties = st.tuples(st.floats(1e-4, 1), *[st.floats(0, 10)] * 4)


def random_field(space, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((len(space), *space)).astype(dtype)


@pytest.mark.parametrize("grid", ["grid2d", "grid3d", "odd3d"])
def test_momentum_is_that_of_the_reference(golden, grid):
    file = golden("operators")
    v = file[f"{grid}_velocity"]
    for i, penalty in enumerate(file["velocity_penalties"]):
        for j, size in enumerate(file["voxel_sizes"]):
            u = momentum(v, penalty, size[: len(v)])
            assert relative_error(u, file[f"{grid}_momentum"][i, j]) < 5e-7


@pytest.mark.parametrize("grid", ["grid2d", "grid3d"])
def test_velocity_is_that_of_the_reference(golden, grid):
    file = golden("greens")
    u = file[f"{grid}_momentum"]
    for case, (penalty, size) in enumerate(
        zip(file["penalties"], file["voxel_sizes"], strict=True)
    ):
        v = velocity(u, penalty, size[: len(u)])
        assert relative_error(v, file[f"{grid}_velocity"][case]) < 4e-5


@given(spaces, penalties, st.integers(0, 99))
def test_operators_follow_the_formulas(space, penalty, seed):
    size = (1.5, 0.7, 2.0)[: len(space)]
    field = random_field(space, seed)
    u = reference.apply_symbol(reference.velocity_symbol(penalty, space, size), field)
    v = reference.apply_symbol(reference.greens_symbol(penalty, space, size), field)
    for dtype, tolerance in ((np.float64, 1e-11), (np.float32, 1e-6)):
        assert relative_error(momentum(field.astype(dtype), penalty, size), u) < tolerance
        assert relative_error(velocity(field.astype(dtype), penalty, size), v) < tolerance


@given(spaces, penalties, st.integers(0, 99))
def test_velocity_inverts_momentum(space, penalty, seed):
    any_v = random_field(space, seed)
    assert relative_error(velocity(momentum(any_v, penalty), penalty), any_v) < 1e-5
    smooth_v = velocity(any_v.astype(np.float32), penalty)  # translations included
    assert smooth_v.dtype == np.float32
    assert relative_error(velocity(momentum(smooth_v, penalty), penalty), smooth_v) < 1e-5


@given(spaces, penalties, st.integers(0, 99))
def test_operator_is_symmetric_and_positive(space, penalty, seed):
    v, w = random_field(space, seed), random_field(space, seed + 100)
    u = momentum(v, penalty)
    assert np.vdot(u, v) > 0
    assert np.vdot(u, w) == pytest.approx(np.vdot(momentum(w, penalty), v), rel=1e-9, abs=1e-9)


def test_without_penalty_on_size_the_mean_velocity_is_zero():
    u = random_field((8, 7)) + 3
    v = velocity(u, (0, 0, 1, 0, 0))
    assert np.abs(v.mean(axis=(1, 2))).max() < 1e-12
    centred = u - u.mean(axis=(1, 2), keepdims=True)
    assert relative_error(momentum(v, (0, 0, 1, 0, 0)), centred) < 1e-10


def test_leading_axes_are_batches():
    v = np.random.default_rng(0).standard_normal((2, 3, 2, 8, 6))
    batch = momentum(v, PENALTY)
    assert batch.shape == v.shape
    assert np.allclose(batch[1, 2], momentum(v[1, 2], PENALTY), rtol=1e-12)


def test_voxel_size_tells_planes_from_volumes():
    v = np.random.default_rng(0).standard_normal((3, 2, 8, 6))
    volume = momentum(v, PENALTY, (1, 1, 1))
    planes = momentum(v, PENALTY)
    assert np.allclose(planes[0], momentum(v[0], PENALTY, (1, 1)))
    assert not np.allclose(volume, planes)


@pytest.mark.parametrize(
    ("field", "penalty", "size", "message"),
    [
        (np.zeros((5, 5)), PENALTY, None, r"shape \(..., 2, ny, nx\).*got \(5, 5\)"),
        (np.zeros((2, 5, 5)), PENALTY, (1, 1, 1), "got .2, 5, 5."),
        (np.zeros((2, 0, 5)), PENALTY, None, "got .2, 0, 5."),
        (np.zeros((2, 5, 5), complex), PENALTY, None, "real numbers, got dtype complex128"),
        (np.zeros((2, 5, 5)), PENALTY[:3], None, "penalty must hold 5 numbers"),
        (np.zeros((2, 5, 5)), (np.nan, 0, 0, 0, 0), None, "penalty must be finite"),
        (np.zeros((2, 5, 5)), (1, -1, 0, 0, 0), None, "penalty must not be negative"),
        (np.zeros((2, 5, 5)), (0, 0, 0, 0, 0), None, "penalty must have a positive weight"),
        (np.zeros((2, 5, 5)), PENALTY, (1, 0), "voxel_size must be positive"),
        (np.zeros((2, 5, 5)), PENALTY, (1, -2), "voxel_size must be positive"),
        (np.zeros((2, 5, 5)), PENALTY, (1, np.inf), "voxel_size must be positive and finite"),
    ],
)
def test_bad_input_is_explained(field, penalty, size, message):
    for operator in (momentum, velocity):
        with pytest.raises(ValueError, match=message):
            operator(field, penalty, size)


def test_divergence_alone_has_no_inverse():
    with pytest.raises(ValueError, match="first four"):
        velocity(np.zeros((2, 5, 5)), (0, 0, 0, 0, 1))
