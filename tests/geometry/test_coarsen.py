"""Grids of a pyramid: averages that keep totals, interpolation that keeps smooth fields."""

import numpy as np
import pytest

from anamorph.geometry.coarsen import (
    averaging_matrix,
    coarse_grid,
    coarsened,
    coarsened_with_spread,
    interpolation_matrix,
    prolonged,
    prolonged_velocities,
)
from anamorph.geometry.operators import field_momentum, momentum
from tests.conftest import relative_error


@pytest.mark.parametrize(
    ("space", "voxel_size", "factor", "expected"),
    [
        ((128, 96), (1.0, 1.0), 2, (64, 48)),
        ((128, 96), (1.0, 1.0), 4, (32, 24)),
        ((97, 45), (1.5, 1.5), 2, (50, 24)),
        ((48, 64, 48), (1.0, 1.0, 1.0), 2, (24, 32, 24)),
        ((40, 40, 11), (1.0, 1.0, 5.0), 4, (10, 10, 11)),
        ((7, 7), (1.0, 1.0), 16, (2, 2)),
    ],
)
def test_coarse_grids_divide_the_same_box(space, voxel_size, factor, expected):
    coarse, size = coarse_grid(space, voxel_size, factor)
    assert coarse == expected
    np.testing.assert_allclose(np.multiply(coarse, size), np.multiply(space, voxel_size))


def test_images_are_averaged_over_blocks():
    images = np.random.default_rng(0).standard_normal((3, 2, 8, 6)).astype(np.float32)
    expected = images.reshape(3, 2, 4, 2, 3, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(coarsened(images, (4, 3)), expected, atol=1e-6)


@pytest.mark.parametrize("space", [(7, 11), (5, 9, 7)])
@pytest.mark.parametrize("cells", [4, 5])
def test_the_mean_of_an_image_stays_whatever_its_size(space, cells):
    images = np.random.default_rng(1).standard_normal((2, 1, *space))
    coarse = coarsened(images, (cells,) * len(space))
    axes = tuple(range(2, images.ndim))
    np.testing.assert_allclose(coarse.mean(axis=axes), images.mean(axis=axes), atol=1e-12)


def test_a_coarse_voxel_is_the_mean_of_what_is_observed():
    images = np.arange(16.0).reshape(1, 1, 4, 4)
    images[0, 0, :2, :2] = np.nan  # nothing of a cell
    images[0, 0, 0, 3] = np.nan  # one of four
    coarse = coarsened(images, (2, 2))
    np.testing.assert_allclose(coarse[0, 0], [[np.nan, (2 + 6 + 7) / 3], [10.5, 12.5]])


def test_nothing_that_is_missing_leaks_through_fractions_of_voxels():
    images = np.full((1, 1, 7, 9), np.nan, np.float32)
    images[..., :3, :] = 5
    coarse = coarsened(images, (4, 5))
    np.testing.assert_allclose(coarse[..., :2, :], 5, rtol=1e-6)
    assert np.isnan(coarse[..., 2:, :]).all()


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_squares_split_into_those_of_means_and_the_spread_around_them(share):
    generator = np.random.default_rng(2)
    images = generator.standard_normal((2, 3, 6, 8))
    images[generator.random(images.shape) < share] = np.nan
    result = coarsened_with_spread(images, (3, 4))
    blocks = images.reshape(2, 3, 3, 2, 4, 2)
    with np.errstate(all="ignore"):
        count = (~np.isnan(blocks)).sum(axis=(3, 5))
        mean_squares = np.nansum(blocks**2, axis=(3, 5)) / count
    both = np.nansum(result.images**2, axis=(2, 3)) + result.spread
    np.testing.assert_allclose(both, np.nansum(mean_squares, axis=(2, 3)), rtol=1e-10)


def test_an_image_is_coarsened_alike_alone_and_among_others():
    images = np.random.default_rng(3).standard_normal((9, 2, 13, 10)).astype(np.float32)
    images[4, 0, 2:5] = np.nan
    together = coarsened_with_spread(images, (8, 6))
    for n in range(len(images)):
        alone = coarsened_with_spread(images[n : n + 1], (8, 6))
        np.testing.assert_array_equal(alone.images[0], together.images[n])
        np.testing.assert_array_equal(alone.spread[0], together.spread[n])


def test_a_grid_that_is_not_coarser_is_refused():
    with pytest.raises(ValueError, match=r"at most \(4, 4\) voxels"):
        coarsened(np.zeros((1, 1, 4, 4)), (4, 6))


@pytest.mark.parametrize(("n_coarse", "n_fine"), [(4, 8), (14, 28), (10, 19), (6, 6)])
def test_interpolation_keeps_constants_and_is_periodic(n_coarse, n_fine):
    matrix = interpolation_matrix(n_coarse, n_fine)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    if n_fine == 2 * n_coarse:
        np.testing.assert_allclose(np.roll(np.roll(matrix, 2, 0), 1, 1), matrix, atol=1e-12)


@pytest.mark.parametrize(("coarse", "fine"), [((16, 12), (32, 24)), ((14, 16, 12), (27, 31, 23))])
def test_smooth_periodic_fields_come_back(coarse, fine):
    def field(space):
        phases = np.meshgrid(*((np.arange(n) + 0.5) / n for n in space), indexing="ij")
        return np.sin(2 * np.pi * (phases[0] + 0.1)) + np.cos(2 * np.pi * sum(phases))

    assert relative_error(prolonged(field(coarse), fine), field(fine)) < 0.02
    assert relative_error(coarsened(field(fine)[None, None], coarse)[0, 0], field(coarse)) < 0.03


def test_energies_per_volume_agree_between_grids():
    """Penalties are in physical units: a smooth field costs the same on every grid of a box."""
    phase = 2 * np.pi * (np.arange(16) + 0.5) / 16
    coarse = np.stack([np.sin(phase)[:, None] + 0 * phase, np.cos(phase)[:, None] * np.sin(phase)])
    fine = prolonged_velocities(coarse, (32, 30))
    sizes = (2.0, 3.0), (1.0, 3.0 * 16 / 30)
    penalty = (0.1, 0.3, 5.0, 0.7, 0.9)
    energies = [
        np.prod(size) * np.vdot(v, momentum(v, penalty, size))
        for v, size in zip((coarse, fine), sizes, strict=True)
    ]
    assert energies[0] == pytest.approx(energies[1], rel=0.05)
    energies = [
        np.prod(size) * np.vdot(a, field_momentum(a, penalty[:3], size))
        for a, size in zip((coarse[:1], prolonged(coarse[:1], (32, 30))), sizes, strict=True)
    ]
    assert energies[0] == pytest.approx(energies[1], rel=0.05)


def test_rows_of_averages_sum_to_one():
    for n_fine, n_coarse in [(8, 4), (7, 4), (9, 5), (5, 5), (64, 22)]:
        np.testing.assert_allclose(averaging_matrix(n_fine, n_coarse).sum(axis=1), 1)
