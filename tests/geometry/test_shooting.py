"""Geodesic shooting: golden numbers, the formulas in float64, and what theory promises."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.geometry import shoot, velocity
from anamorph.kernels.threads import use_threads
from tests import reference
from tests.conftest import relative_error

PENALTY = (0.001, 0.02, 4.0, 0.3, 0.5)
TOLERANCE = {"iso2d": 7e-5, "aniso2d": 3.3e-4, "iso3d": 4.7e-4, "aniso3d": 1.1e-5}

cases = st.tuples(
    st.one_of(st.tuples(*[st.integers(2, 12)] * 2), st.tuples(*[st.integers(3, 7)] * 3)),
    st.floats(0.1, 20),
    st.integers(0, 99),
)


def random_velocity(case, n_fields=None, dtype=np.float64):
    space, largest, seed = case
    lead = () if n_fields is None else (n_fields,)
    noise = np.random.default_rng(seed).standard_normal((*lead, len(space), *space))
    v = velocity(noise, PENALTY)
    return (v * largest / np.abs(v).max()).astype(dtype)


@pytest.mark.parametrize("name", list(TOLERANCE))
def test_displacement_is_that_of_the_reference(golden, name):
    file = golden("shooting")
    v, penalty = file[f"{name}_velocity"], file[f"{name}_penalty"]
    for i, n_steps in enumerate(file["n_steps"]):
        displacement, final = shoot(
            v, penalty, file[f"{name}_voxel_size"], int(n_steps), return_velocity=True
        )
        expected = file[f"{name}_displacement"][:, i]
        tolerance = 9e-7 if n_steps == 1 else TOLERANCE[name]
        for result, target in zip(displacement, expected, strict=True):
            assert relative_error(result, target) < tolerance
    assert relative_error(final, file[f"{name}_final_velocity"]) < 1.2 * TOLERANCE[name]


@pytest.mark.parametrize("name", list(TOLERANCE))
def test_float32_follows_the_formulas_on_golden_fields(golden, name):
    file = golden("shooting")
    penalty, size = file[f"{name}_penalty"], file[f"{name}_voxel_size"]
    for v in file[f"{name}_velocity"]:
        expected, _ = reference.shoot(v.astype(np.float64), penalty, size, 8)
        assert relative_error(shoot(v, penalty, size), expected) < 1e-5


@given(cases, st.integers(1, 9))
def test_shooting_follows_the_formulas(case, n_steps):
    v = random_velocity(case)
    size = (1.5, 0.7, 2.0)[: len(v)]
    expected, final = reference.shoot(v, PENALTY, size, n_steps)
    displacement, velocity_at_end = shoot(v, PENALTY, size, n_steps, return_velocity=True)
    assert relative_error(displacement, expected) < 1e-9
    assert relative_error(velocity_at_end, final) < 1e-9


@given(cases, st.integers(1, 70), st.integers(1, 3))
def test_batches_and_threads_do_not_matter(case, n_fields, n_threads):
    v = random_velocity(case, n_fields, np.float32)
    with use_threads(n_threads):
        together = shoot(v, PENALTY)
    with use_threads(1):
        alone = np.stack([shoot(field, PENALTY) for field in v[:3]])
    assert relative_error(together[:3], alone) < 1e-5


def test_leading_axes_are_batches():
    v = random_velocity(((8, 7), 2.0, 0), 6, np.float32)
    assert np.array_equal(
        shoot(v.reshape(2, 3, 2, 8, 7), PENALTY).reshape(v.shape), shoot(v, PENALTY)
    )


@pytest.mark.parametrize("space", [(9, 8), (5, 6, 7)])
def test_no_velocity_means_no_displacement(space):
    assert not shoot(np.zeros((4, len(space), *space), np.float32), PENALTY).any()


@given(st.floats(-30, 30), st.floats(-30, 30), st.integers(1, 10))
def test_a_constant_velocity_is_a_translation(dy, dx, n_steps):
    v = np.empty((2, 9, 8), np.float32)
    v[0], v[1] = dy, dx
    assert np.allclose(shoot(v, PENALTY, n_steps=n_steps), -v, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("space", [(32, 24), (16, 12, 14)])
def test_more_steps_converge(space):
    v = random_velocity((space, 3.0, 1))
    exact = shoot(v, PENALTY, n_steps=512)
    errors = [np.abs(shoot(v, PENALTY, n_steps=n) - exact).max() for n in (8, 16, 32)]
    assert errors[0] > 1.6 * errors[1] > 1.6**2 * errors[2]


def test_long_steps_agree_with_short_ones():
    """A batch with one fast field takes the general path, and the slow fields must not change."""
    slow = random_velocity(((20, 20), 4.0, 1), 3, np.float32)
    fast = random_velocity(((20, 20), 60.0, 2), 1, np.float32)
    mixed = shoot(np.concatenate([slow, fast]), PENALTY)
    assert relative_error(mixed[:3], shoot(slow, PENALTY)) < 1e-5


def test_without_penalty_on_size_the_path_has_no_mean():
    v = random_velocity(((10, 9), 2.0, 0)) + 1.0
    penalty = (0, 0.1, 1.0, 0, 0)
    expected, _ = reference.shoot(v, penalty, (1, 1), 8)
    assert relative_error(shoot(v, penalty), expected) < 1e-9


@pytest.mark.parametrize(
    ("v", "options", "message"),
    [
        (np.zeros((2, 5)), {}, "v must have shape"),
        (np.full((2, 5, 5), np.nan), {}, "v must be finite"),
        (np.zeros((2, 5, 5)), {"n_steps": 0}, "n_steps must be an integer >= 1, got 0"),
        (np.zeros((2, 5, 5)), {"n_steps": 2.5}, "n_steps must be an integer"),
        (np.zeros((2, 5, 5)), {"voxel_size": (0, 1)}, "voxel_size must be positive"),
        (np.zeros((2, 5, 5)), {"penalty": (1, 1, 1)}, "penalty must hold 5 numbers"),
    ],
)
def test_bad_input_is_explained(v, options, message):
    with pytest.raises(ValueError, match=message):
        shoot(v, **{"penalty": PENALTY, **options})


@pytest.mark.parametrize(("n_images", "space"), [(1, (40, 40, 40)), (3, (200, 180))])
def test_shooting_takes_little_memory(n_images, space):
    v = random_velocity((space, 3.0, 0), n_images, np.float32)
    shoot(v, PENALTY)  # kernels and symbols are made once and kept
    tracemalloc.start()
    shoot(v, PENALTY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 8 * v.nbytes
