"""Pulling and pushing: golden numbers, the formulas in float64, and their properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.geometry import compose, invert, jacobian_determinant, pull, push, shoot
from anamorph.kernels.threads import use_threads
from tests import reference
from tests.conftest import relative_error

# A volume of two planes is read as a batch of plane fields, so there is none among these.
volumes = st.tuples(*[st.integers(1, 6)] * 3).filter(lambda space: space[0] != 2)
cases = st.tuples(
    st.one_of(st.tuples(*[st.integers(1, 9)] * 2), volumes),
    st.integers(1, 3),
    st.floats(0.1, 40),
    st.integers(0, 99),
)


def random_case(case, dtype=np.float64):
    space, n_channels, distance, seed = case
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((n_channels, *space))
    displacement = distance * rng.standard_normal((len(space), *space))
    return image.astype(dtype), displacement.astype(dtype)


@pytest.mark.parametrize("grid", ["grid2d", "grid3d"])
def test_warps_are_those_of_the_reference(golden, grid):
    file = golden("warp")
    displacement = file[f"{grid}_displacement"]
    pulled = pull(file[f"{grid}_image"], displacement)
    pushed = push(file[f"{grid}_source"], displacement)
    count = push(np.ones_like(displacement[:1]), displacement)
    assert relative_error(pulled, file[f"{grid}_pulled"]) < 3e-7
    assert relative_error(pushed, file[f"{grid}_pushed"]) < 4e-7
    assert relative_error(count, file[f"{grid}_count"]) < 3e-7


# Volumes with rows long enough that eight voxels are warped at once, where that is possible.
long_rows = st.tuples(
    st.tuples(st.sampled_from([1, 3, 4, 7]), st.integers(1, 7), st.integers(7, 45)),
    st.integers(1, 3),
    st.floats(-60, 60),
    st.floats(0, 6),
    st.sampled_from([0.0, 0.0, 0.02, 1.0]),
    st.integers(0, 99),
)


def smooth_case(case, dtype=np.float64):
    """Return an image and a displacement: a shift, waves as long as the rows, and some noise."""
    space, n_channels, shift, amplitude, roughness, seed = case
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((n_channels, *space))
    phase = np.indices(space) * 2 * np.pi / np.reshape(space, (3, 1, 1, 1))
    waves = np.stack([np.sin(phase.sum(axis=0) + start) for start in rng.uniform(0, 6, 3)])
    displacement = shift + amplitude * waves + roughness * rng.standard_normal((3, *space))
    return image.astype(dtype), displacement.astype(dtype)


@given(long_rows)
def test_smooth_warps_follow_the_formulas(case):
    image, displacement = smooth_case(case)
    assert np.allclose(pull(image, displacement), reference.pull(image, displacement), atol=1e-11)
    assert np.allclose(push(image, displacement), reference.push(image, displacement), atol=1e-11)


@given(long_rows)
def test_smooth_float32_warps_are_as_exact_as_float32(case):
    image, displacement = smooth_case(case, np.float32)
    pulled, pushed = pull(image, displacement), push(image, displacement)
    exact = displacement.astype(np.float64)
    assert pulled.dtype == pushed.dtype == np.float32
    assert relative_error(pulled, reference.pull(image, exact)) < 1e-6
    assert relative_error(pushed, reference.push(image.astype(np.float64), exact)) < 1e-6


@given(long_rows)
def test_push_is_the_transpose_of_pull_for_smooth_warps(case):
    image, displacement = smooth_case(case)
    other = np.random.default_rng(7).standard_normal(image.shape)
    one = np.vdot(pull(image, displacement), other)
    two = np.vdot(image, push(other, displacement))
    assert one == pytest.approx(two, rel=1e-9, abs=1e-9)
    assert push(image, displacement).sum() == pytest.approx(image.sum(), rel=1e-9, abs=1e-9)


@given(long_rows, st.integers(1, 3), st.integers(2, 5))
def test_threads_do_not_matter_for_smooth_warps(case, n_images, n_threads):
    image, displacement = smooth_case(case)
    images = np.stack([image, -2 * image, 0.5 * image])[:n_images]
    displacements = np.stack([displacement, 0.5 * displacement, -displacement])[:n_images]
    for warp in (pull, push):
        with use_threads(n_threads):
            together = warp(images, displacements)
        with use_threads(1):
            apart = np.stack([warp(*pair) for pair in zip(images, displacements, strict=True)])
        assert np.allclose(together, apart, atol=1e-11)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_cells(value):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 5, 6, 32))
    displacement = np.zeros((3, 5, 6, 32))
    displacement[:, :, :, ::2] = 0.75  # eight voxels are in two cells along each axis
    hidden = image.copy()
    hidden[1, 2, 3, 14] = value
    for warp, formula in ((pull, reference.pull), (push, reference.push)):
        with np.errstate(invalid="ignore"):  # infinity times 0, here and in the formulas
            warped, expected = warp(hidden, displacement), formula(hidden, displacement)
        outside = np.isfinite(expected)
        assert 0 < (~outside).sum() <= 8
        assert np.allclose(warped[outside], expected[outside])


@given(cases)
def test_warps_follow_the_formulas(case):
    image, displacement = random_case(case)
    assert np.allclose(pull(image, displacement), reference.pull(image, displacement), atol=1e-11)
    assert np.allclose(push(image, displacement), reference.push(image, displacement), atol=1e-11)


@given(cases)
def test_float32_warps_are_as_exact_as_float32(case):
    image, displacement = random_case(case, np.float32)
    pulled, pushed = pull(image, displacement), push(image, displacement)
    exact = displacement.astype(np.float64)
    assert pulled.dtype == pushed.dtype == np.float32
    assert relative_error(pulled, reference.pull(image, exact)) < 1e-6
    assert relative_error(pushed, reference.push(image.astype(np.float64), exact)) < 1e-6


@given(cases)
def test_push_is_the_transpose_of_pull(case):
    image, displacement = random_case(case)
    other = np.random.default_rng(7).standard_normal(image.shape)
    one = np.vdot(pull(image, displacement), other)
    two = np.vdot(image, push(other, displacement))
    assert one == pytest.approx(two, rel=1e-9, abs=1e-9)


@given(cases)
def test_push_conserves_the_total(case):
    image, displacement = random_case(case)
    pushed = push(image, displacement)
    assert pushed.sum() == pytest.approx(image.sum(), rel=1e-9, abs=1e-9)


@given(cases, st.floats(-3, 3))
def test_warps_are_linear_in_the_image(case, factor):
    image, displacement = random_case(case)
    other = np.random.default_rng(7).standard_normal(image.shape)
    for warp in (pull, push):
        together = warp(image + factor * other, displacement)
        apart = warp(image, displacement) + factor * warp(other, displacement)
        assert np.allclose(together, apart, atol=1e-9)


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_whole_steps_shift_the_image(dy, dx):
    image = np.random.default_rng(0).standard_normal((2, 7, 5)).astype(np.float32)
    displacement = np.empty((2, 7, 5), np.float32)
    displacement[0], displacement[1] = dy, dx
    assert np.array_equal(pull(image, displacement), np.roll(image, (-dy, -dx), (1, 2)))
    assert np.array_equal(push(image, displacement), np.roll(image, (dy, dx), (1, 2)))


@given(cases, st.integers(1, 6), st.integers(1, 5))
def test_batches_and_threads_do_not_matter(case, n_images, n_threads):
    rng = np.random.default_rng(3)
    space, n_channels, distance, _ = case
    images = rng.standard_normal((n_images, n_channels, *space)).astype(np.float32)
    displacements = distance * rng.standard_normal((n_images, len(space), *space))
    displacements = displacements.astype(np.float32)
    for warp in (pull, push):
        with use_threads(n_threads):
            together = warp(images, displacements)
        with use_threads(1):
            apart = np.stack([warp(*pair) for pair in zip(images, displacements, strict=True)])
        assert np.allclose(together, apart, atol=1e-5)


def test_leading_axes_broadcast():
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 8, 6))
    displacement = rng.standard_normal((4, 3, 2, 8, 6))
    pulled = pull(image, displacement)
    assert pulled.shape == (4, 3, 2, 8, 6)
    assert np.allclose(pulled[3, 1], pull(image, displacement[3, 1]))


@pytest.mark.parametrize("space", [(6, 5), (4, 6, 24)])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e9])
def test_what_cannot_be_located_harms_nothing_else(value, space):
    image = np.ones((1, *space), np.float32)
    displacement = np.zeros((len(space), *space), np.float32)
    displacement[-1, ..., 2, 3] = value
    pulled = pull(image, displacement)
    assert np.all(np.isnan(pulled[..., 2, 3]) != np.isfinite(value))
    pulled[..., 2, 3] = 1
    assert np.array_equal(pulled, image)


def golden_displacements(golden):
    file = golden("shooting")
    for name in ("iso2d", "aniso2d", "iso3d", "aniso3d"):
        yield shoot(file[f"{name}_velocity"], file[f"{name}_penalty"], file[f"{name}_voxel_size"])


def test_jacobian_determinants_of_golden_warps_are_positive(golden):
    for displacement in golden_displacements(golden):
        assert jacobian_determinant(displacement).min() > 0


def test_jacobian_determinant_of_a_shear_and_a_stretch():
    x = np.arange(64) * 2 * np.pi / 64
    stretch = np.zeros((2, 64, 64))
    stretch[1] = 3 * np.sin(x)
    slope = 3 * np.cos(x) * np.sin(2 * np.pi / 64)  # what central differences give
    assert np.allclose(jacobian_determinant(stretch), np.broadcast_to(1 + slope, (64, 64)))
    shear = np.zeros((2, 64, 64))
    shear[1] = 3 * np.sin(x)[:, None]
    assert np.allclose(jacobian_determinant(shear), 1)


def test_inverse_undoes_golden_warps(golden):
    for displacement in golden_displacements(golden):
        inverse = invert(displacement, tolerance=1e-4)
        assert inverse.dtype == displacement.dtype
        assert np.abs(compose(displacement, inverse)).max() <= 1e-4
        # Warps are interpolated linearly, so on the other side the inverse is approximate.
        assert np.abs(compose(inverse, displacement)).mean() < 0.05


def test_composition_of_translations_adds_them():
    one, two = np.full((2, 6, 5), 1.25), np.full((2, 6, 5), -0.5)
    assert np.allclose(compose(one, two), 0.75)


def test_folded_warps_have_no_inverse():
    displacement = np.zeros((2, 16, 16))
    displacement[1] = 8 * np.sin(np.arange(16) * 2 * np.pi / 16)
    with pytest.raises(ValueError, match=r"cannot be inverted.*Jacobian determinant is -"):
        invert(displacement)


@pytest.mark.parametrize(
    ("image", "displacement", "message"),
    [
        (np.zeros((1, 5, 5)), np.zeros((5, 5)), "displacement must have shape"),
        (
            np.zeros((1, 5, 6)),
            np.zeros((2, 5, 5)),
            r"image must have shape \(..., channels, 5, 5\)",
        ),
        (np.zeros((5, 5)), np.zeros((2, 5, 5)), r"image must have shape.*got \(5, 5\)"),
        (np.zeros((3, 1, 5, 5)), np.zeros((2, 2, 5, 5)), "leading axes"),
        (np.zeros((1, 5, 5), bool), np.zeros((2, 5, 5)), "image must be an array of real numbers"),
    ],
)
def test_bad_input_is_explained(image, displacement, message):
    for warp in (pull, push):
        with pytest.raises(ValueError, match=message):
            warp(image, displacement)
