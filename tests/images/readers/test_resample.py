"""Resampling by affines: right inside the field of view, missing outside."""

import numpy as np
import pytest

from anamorph.images.files import FileImages
from anamorph.images.grid import Grid
from anamorph.images.readers.resample import resample
from tests.images.filemaking import EVERYTHING, rotated_affine, save_nifti


def positions(grid):
    """Return where voxels are, (3, *space), in mm."""
    indices = np.indices((*grid.space, *(1,) * (3 - len(grid.space))))
    places = np.tensordot(grid.affine[:3, :3], indices, 1) + grid.affine[:3, 3].reshape(3, 1, 1, 1)
    return places.reshape(3, *grid.space)


def linear(grid):
    """Return an image that linear interpolation reproduces, (1, *space)."""
    return np.tensordot([0.3, -0.2, 0.5], positions(grid), 1)[None].astype(np.float32)


@pytest.mark.parametrize(
    ("angle", "size"), [(0.0, (1, 1, 1)), (0.3, (1, 1.5, 2)), (-1.2, (0.7, 1, 1.3))]
)
def test_a_rotated_image_is_brought_back(angle, size):
    target = Grid((16, 17, 18), np.diag([1.0, 1, 1, 1]))
    source = Grid((14, 15, 16), rotated_affine(angle, size, (3.5, 1.0, 2.25)))
    result = resample(linear(source), source, target)
    from_origin = positions(target).reshape(3, -1) - source.affine[:3, 3:]
    voxels = np.linalg.solve(source.affine[:3, :3], from_origin).reshape(3, *target.space)
    last = np.array(source.space).reshape(3, 1, 1, 1) - 1
    inside = ((voxels >= 0) & (voxels <= last)).all(axis=0)
    outside = ((voxels < -0.5001) | (voxels > last + 0.5001)).any(axis=0)
    assert inside.sum() > 300
    assert outside.sum() > 300
    assert np.allclose(result[0][inside], linear(target)[0][inside], atol=1e-4)
    assert np.isnan(result[0][outside]).all()
    assert not np.isnan(result[0][inside]).any()


def test_a_shift_by_whole_voxels_is_exact():
    image = np.random.default_rng(0).random((2, 6, 7, 8)).astype(np.float32)
    target = Grid((6, 7, 8), np.eye(4))
    shifted = np.eye(4)
    shifted[:3, 3] = (2, 0, -1)
    result = resample(image, Grid((6, 7, 8), shifted), target)
    assert np.allclose(result[:, 2:, :, :-1], image[:, :-2, :, 1:], atol=1e-6)
    assert np.isnan(result[:, :2]).all()
    assert np.isnan(result[..., -1]).all()


def test_slices_in_space():
    image = np.random.default_rng(0).random((1, 6, 7)).astype(np.float32)
    affine = rotated_affine()
    for height, is_seen in ((0.0, True), (0.4, True), (0.6, False)):
        moved = affine.copy()
        moved[:, 3] = affine @ [1, 0, height, 1]
        result = resample(image, Grid((6, 7), affine), Grid((6, 7), moved))
        assert np.isnan(result[:, -1]).all()
        assert np.allclose(result[:, :-1], image[:, 1:], atol=1e-5) == is_seen
        assert np.isnan(result[:, :-1]).all() != is_seen


def test_missing_voxels_spread_by_no_more_than_half_a_voxel():
    image = np.ones((1, 8, 8), np.float32)
    image[0, 4:] = np.nan
    moved = np.eye(4)
    moved[0, 3] = 0.25
    result = resample(image, Grid((8, 8), np.eye(4)), Grid((8, 8), moved))
    assert np.allclose(result[0, :4], 1)
    assert np.isnan(result[0, 4:]).all()


def test_labels_are_taken_from_the_nearest_voxel(tmp_path):
    labels = np.zeros((8, 9, 10), np.uint8)
    labels[:, 4:] = 3
    moved = np.eye(4)
    moved[:3, 3] = (2.2, 0, 0)
    paths = [
        save_nifti(tmp_path / "a.nii", labels),
        save_nifti(tmp_path / "b.nii", labels, moved),
    ]
    images = FileImages(paths, "categorical", resample=True)
    images.check(for_fit=True)
    classes = images.read(EVERYTHING)
    assert set(np.unique(classes[~np.isnan(classes)])) == {0, 1}
    assert np.isnan(classes[1, :, :2]).all()
    assert images.format.space == (10, 9, 10)  # the first, and two voxels more for the second
    assert images.format.labels == (0, 3)
    seen = images.format.to_labels(classes[1, :, 2:].argmax(axis=0))
    assert np.array_equal(seen, labels)


def test_collections_resample_onto_a_grid_that_holds_all(tmp_path):
    grids = [
        Grid((12, 13, 14), np.eye(4)),
        Grid((12, 13, 14), rotated_affine(0.2, (1.1, 1, 0.9), (1.0, -1.0, 0.5))),
    ]
    paths = [
        save_nifti(tmp_path / f"{n}.nii", linear(grid)[0], grid.affine)
        for n, grid in enumerate(grids)
    ]
    cache = tmp_path / "cache"
    images = FileImages(paths, resample=True, cache=cache, pad=1)
    images.check(for_fit=True)
    first, second = images.read(EVERYTHING)[:, 0, 1:-1, 1:-1, 1:-1]
    inner = (slice(5, 8),) * 3
    assert np.allclose(second[inner], first[inner], atol=1e-4)
    assert np.isnan(second).any()
    for image, grid in zip((first, second), grids, strict=True):
        # Nothing is lost: as much of the volume is observed as each image has.
        volume = np.prod(grid.voxel_size) * np.prod(grid.space)
        assert abs((~np.isnan(image)).sum() / volume - 1) < 0.06  # of rounding to voxels
    assert len(list(cache.iterdir())) == 2
