"""Inverses of warps: along geodesics, of any displacement that has one, and of points."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from anamorph.geometry import compose, corner_determinants, invert, shoot, shoot_both
from anamorph.geometry.inverses import InverseOfSteps, find_places, move_points
from tests.conftest import one_line
from tests.device.conftest import gpu  # noqa: F401  the fixture

PENALTY = (0.001, 0.02, 0.4, 0.05, 0.05)


def rough(space, seed, width=1.2):
    """Return a random displacement, smooth but for a voxel or so."""
    noise = np.random.default_rng(seed).standard_normal((len(space), *space))
    return np.stack([gaussian_filter(part, width, mode="wrap") for part in noise])


def on_the_verge(field, least):
    """Return a displacement scaled until its smallest determinant is about `least`."""
    low, high = 0.0, 1.0
    while corner_determinants(high * field).min() > least:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if corner_determinants(middle * field).min() > least:
            low = middle
        else:
            high = middle
    return low * field


@given(st.integers(0, 10**6), st.sampled_from([1e-8, 1e-4, 0.004]))
def test_every_warp_of_a_plane_without_folds_has_its_inverse(seed, least):
    warp = on_the_verge(rough((13, 11), seed), least)
    inverse = invert(warp, tolerance=1e-5)
    assert np.abs(compose(warp, inverse)).max() <= 1e-5


@given(st.integers(0, 10**6))
def test_warps_of_volumes_have_inverses(seed):
    warp = on_the_verge(rough((7, 6, 8), seed), 0.02)
    assert np.abs(compose(warp, invert(warp, tolerance=1e-5))).max() <= 1e-5


def test_where_newton_fails_cells_are_searched():
    """With no iterations at all, every place comes from the search; both dimensions."""
    for space in ((9, 8), (6, 7, 5)):
        warp = on_the_verge(rough(space, 3), 0.05)
        searched = invert(warp, tolerance=1e-6, max_iterations=0)
        assert np.allclose(searched, invert(warp, tolerance=1e-6), atol=1e-3)
        assert np.abs(compose(warp, searched)).max() <= 1e-5


@pytest.mark.parametrize("space", [(6, 7), (6, 7, 5)])
def test_no_place_is_found_where_there_is_nan(space):
    """And where nothing is found, places stay where the search began."""
    d = len(space)
    field = np.zeros((d, *space), np.float32)
    field[(0, *(1,) * d)] = np.nan
    points = np.array([[1.2] * d, [3.2] * d])
    start = np.array([[1.2] * d, [1.5] * d])
    places, found = find_places(field, points, start)
    assert not found[0]
    assert np.isfinite(places).all()
    np.testing.assert_array_equal(places[~found], start[~found])


def test_folds_are_named_by_their_voxel():
    warp = np.zeros((2, 3, 16, 16))[:, 1]
    warp[1, 5, 7] = 1.5  # one voxel goes past its neighbour
    with pytest.raises(ValueError, match="cannot be inverted") as error:
        invert(warp)
    text = one_line(error)
    place = tuple(map(int, re.search(r"voxel \((\d+), (\d+)\)", text).groups()))
    assert place in {(4, 7), (5, 7)}
    assert "-0.5" in text


def test_what_is_not_finite_has_no_inverse():
    warp = np.zeros((2, 6, 6))
    warp[0, 2, 2] = np.nan
    with pytest.raises(ValueError, match="finite"):
        invert(warp)


@pytest.mark.parametrize("space", [(6, 5), (5, 4, 6)])
def test_corner_determinants_are_those_of_the_interpolated_warp(space):
    """By differences within each cell, close to each of its corners."""
    warp, d = 0.8 * rough(space, 1), len(space)
    found, tiny = corner_determinants(warp), 1e-4
    voxels = np.indices(space).reshape(d, -1).T.astype(float)
    for c, corner in enumerate(product((0, 1), repeat=d)):
        inside = voxels + np.where(corner, 1 - tiny, tiny)
        columns = [
            (move_points(warp, inside + step) - move_points(warp, inside - step)) / tiny
            for step in np.eye(d) * tiny / 2
        ]
        determinant = np.linalg.det(np.stack(columns, axis=-1))
        assert np.allclose(found[c].ravel(), determinant, atol=2e-3)


@pytest.mark.parametrize("space", [(20, 18), (10, 9, 8)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_geodesics_give_psi_and_its_inverse(space, dtype):
    velocity = np.stack([9 * rough(space, seed, 2.0) for seed in range(3)]).astype(dtype)
    displacement, inverse = shoot_both(velocity, PENALTY)
    assert displacement.dtype == inverse.dtype == dtype
    assert np.allclose(displacement, shoot(velocity, PENALTY), atol=1e-5)
    assert np.abs(displacement).max() > 1
    assert np.abs(compose(displacement, inverse)).max() <= 2e-3


def test_inverses_along_the_path_invert_its_steps():
    """Without the last polish: steps of known velocities, evaluated without interpolating psi."""
    steps = [2 * rough((24, 22), seed, 2.5).astype(np.float32)[None] for seed in range(4)]
    inverse = np.empty_like(steps[0])
    growing = InverseOfSteps(4, inverse)
    for step in steps:
        growing.extend(step)
    places = np.indices((24, 22)) + inverse[0]
    points = places.reshape(2, -1).T
    for step in reversed(steps):
        points = move_points(-step[0] / 4, points)
    assert np.abs(points - np.indices((24, 22)).reshape(2, -1).T).max() < 1e-3
    assert np.abs(steps[0]).max() / 4 > 0.1


@pytest.mark.parametrize("space", [(14, 12), (8, 9, 7)])
def test_points_go_there_and_back(space):
    warp = on_the_verge(rough(space, 5), 0.1)
    points = np.random.default_rng(2).uniform(-3, 17, (200, len(space)))  # beyond the grid, too
    there = move_points(warp, points)
    back, found = find_places(warp, there, there, tolerance=1e-6)
    assert found.all()
    assert np.abs(back - points).max() < 1e-4


def test_the_same_on_a_gpu(gpu):  # noqa: F811
    velocity = np.stack([2 * rough((5, 4), seed, 1.5) for seed in range(2)]).astype(np.float32)
    here = shoot_both(velocity, PENALTY, n_steps=3)
    there = shoot_both(gpu.asarray(velocity), PENALTY, n_steps=3)
    for ours, theirs in zip(here, there, strict=True):
        assert np.allclose(ours, theirs.get(), atol=2e-3)
    warp = 0.3 * here[0]
    assert np.allclose(invert(gpu.asarray(warp)).get(), invert(warp), atol=2e-3)
    searched = invert(gpu.asarray(warp), max_iterations=0)
    assert np.allclose(searched.get(), invert(warp), atol=2e-3)
