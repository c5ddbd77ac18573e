"""Adjoint shooting: the same path as shooting, and the derivative that finite differences find."""

import numpy as np
import pytest

from anamorph.geometry import shoot, velocity
from anamorph.geometry.adjoint import RecordedPath
from anamorph.geometry.warps import pull_batch, slope_batch
from anamorph.kernels.threads import use_threads
from tests.conftest import relative_error

PENALTY = (0.002, 0.02, 2.0, 0.2, 0.2)
WITHOUT_MEAN = (0.0, 0.1, 1.0, 0.1, 0.0)
SIZE = (1.0, 1.3, 0.8)
SPACES = [(16, 14), (8, 9, 7), (1, 6), (2, 5, 3)]
every_space = pytest.mark.parametrize("space", SPACES, ids=str)


def smooth_fields(space, seed, largest, n_fields=3, dtype=np.float64):
    noise = np.random.default_rng(seed).standard_normal((n_fields, len(space), *space))
    fields = velocity(noise, PENALTY, SIZE[: len(space)])
    scale = largest / np.abs(fields).max(axis=tuple(range(1, fields.ndim)), keepdims=True)
    return np.ascontiguousarray(fields * scale, dtype)


def recorded(v, penalty=PENALTY, n_steps=8):
    return RecordedPath(v, penalty, SIZE[: v.ndim - 2], n_steps)


@every_space
@pytest.mark.parametrize("penalty", [PENALTY, WITHOUT_MEAN], ids=["mean", "no mean"])
@pytest.mark.parametrize("n_steps", [1, 2, 8])
def test_the_path_is_that_of_shooting(space, penalty, n_steps):
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 2e-5)):
        v = smooth_fields(space, 0, 2.5, dtype=dtype)
        expected = shoot(v, penalty, SIZE[: len(space)], n_steps)
        assert relative_error(recorded(v, penalty, n_steps).displacement, expected) < tolerance


@every_space
@pytest.mark.parametrize("penalty", [PENALTY, WITHOUT_MEAN], ids=["mean", "no mean"])
@pytest.mark.parametrize(("n_steps", "largest"), [(1, 2.5), (8, 2.5), (3, 10.0)])
def test_the_derivative_is_that_of_finite_differences(space, penalty, n_steps, largest):
    """Of what `shoot` computes, with short steps and with steps of several voxels."""
    v = smooth_fields(space, 0, largest)
    covector = np.random.default_rng(1).standard_normal(v.shape)
    found = recorded(v, penalty, n_steps).differentiate(covector)
    axes = tuple(range(1, v.ndim))
    for seed in range(3):
        direction = smooth_fields(space, 10 + seed, 1.0)
        expected = _differences(v, direction, covector, penalty, n_steps)
        # A kink of linear interpolation between the two ends spoils a difference.
        close = np.abs((found * direction).sum(axis=axes) / expected - 1) < 1e-6
        assert close.sum() >= 2


def _differences(v, direction, covector, penalty, n_steps, step=1e-6):
    size = SIZE[: v.ndim - 2]
    ends = [shoot(v + sign * step * direction, penalty, size, n_steps) for sign in (1, -1)]
    return ((ends[0] - ends[1]) * covector).sum(axis=tuple(range(1, v.ndim))) / (2 * step)


@every_space
def test_float32_follows_float64(space):
    v = smooth_fields(space, 0, 2.5)
    covector = smooth_fields(space, 1, 1.0)
    exact = recorded(v).differentiate(covector)
    single = recorded(v.astype(np.float32)).differentiate(covector.astype(np.float32))
    assert relative_error(single, exact) < 1e-3
    assert single.dtype == np.float32


def test_some_of_the_images_and_any_number_of_threads():
    v, covector = (smooth_fields((9, 8), seed, 2.0, 5, np.float32) for seed in (0, 1))
    path = recorded(v)
    everything = path.differentiate(covector)
    which = np.array([3, 0])
    assert np.allclose(path.differentiate(covector[which], which), everything[which], atol=1e-5)
    for threads in (1, 3, 7):
        with use_threads(threads):
            assert np.allclose(recorded(v).differentiate(covector), everything, atol=1e-5)


@every_space
def test_slopes_are_those_of_linear_interpolation(space):
    rng = np.random.default_rng(3)
    image, weights = rng.standard_normal((2, 2, 3, *space))
    warp = 4 * rng.standard_normal((2, len(space), *space))
    found, step = slope_batch(image, weights, warp), 1e-7
    for axis in range(len(space)):
        moved = [warp.copy(), warp.copy()]
        moved[0][:, axis] += step
        moved[1][:, axis] -= step
        difference = pull_batch(image, moved[0]) - pull_batch(image, moved[1])
        expected = (weights * difference).sum(axis=1) / (2 * step)
        assert np.allclose(found[:, axis], expected, atol=1e-6)


def test_on_a_grid_point_the_slope_is_that_of_the_cell_behind_it():
    image = np.array([0.0, 1.0, 5.0])[None, None, None].repeat(2, axis=2)
    slopes = slope_batch(image, np.ones_like(image), np.zeros((1, 2, 2, 3)))
    assert np.array_equal(slopes[0, 1, 0], [1, 4, -5])
