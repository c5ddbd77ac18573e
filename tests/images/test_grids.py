"""Files on different grids go in as they are: affines decide what lies where."""

import logging

import nibabel as nib
import numpy as np
import pytest

from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from tests.images.filemaking import EVERYTHING, rotated_affine, save_nifti

SPACE = (12, 10, 8)


def lopsided():
    """Return a volume that is brightest on the right, in front and at the top, and smooth."""
    x, y, z = np.indices(SPACE) / np.array(SPACE).reshape(3, 1, 1, 1)
    return (x + 0.5 * y + 0.2 * z + np.exp(-8 * ((x - 0.8) ** 2 + (y - 0.3) ** 2))).astype("f4")


def turned(image, affine, codes):
    """Return the same volume and its affine with axes that lead elsewhere."""
    transform = nib.orientations.ornt_transform(
        nib.io_orientation(affine), nib.orientations.axcodes2ornt(tuple(codes))
    )
    turned = nib.orientations.apply_orientation(image, transform)
    return turned, affine @ nib.orientations.inv_ornt_aff(transform, image.shape)


@pytest.fixture
def as_they_come(tmp_path):
    """Return files of one volume, in several orientations."""
    affine = np.diag([2.0, 2, 2, 1])
    affine[:3, 3] = -11, -9, -7
    paths = []
    for codes in ("RAS", "LAS", "RAS", "LPI", "ASL", "RAS"):
        image, own = turned(lopsided(), affine, codes)
        paths.append(save_nifti(tmp_path / f"{len(paths)}{codes}.nii.gz", image, own))
    return paths


def test_orientations_are_brought_together(as_they_come):
    """Left stays left in every one of them."""
    images = FileImages(as_they_come)
    assert images.grid.orientation == "RAS"
    assert images.grid.space == SPACE
    for image in images.read(EVERYTHING):
        assert np.allclose(image[0], lopsided(), atol=1e-5)


def test_a_header_that_mirrors_is_believed(tmp_path, as_they_come):
    """A volume whose header calls left right comes out mirrored: world coordinates decide."""
    image, affine = lopsided(), np.diag([-2.0, 2, 2, 1])
    affine[:3, 3] = 11, -9, -7
    mirrored = save_nifti(tmp_path / "mirrored.nii.gz", image, affine)
    images = FileImages([*as_they_come, mirrored])
    assert np.allclose(images.read(EVERYTHING)[-1, 0], image[::-1], atol=1e-5)


def test_oblique_files_of_other_voxel_sizes_and_fields_of_view_match(tmp_path):
    def wave(points):
        return np.sin(points[0] / 6) + 0.3 * np.cos(points[1] / 5) + 0.1 * points[2]

    paths, grids = [], [((12, 12, 12), (2, 2, 2), 0.0), ((9, 12, 13), (3, 2, 2), 0.3)]
    grids.append(((16, 15, 11), (1.5, 1.5, 2), -0.2))
    for n, (space, size, angle) in enumerate(grids):
        affine = rotated_affine(angle, size, (0, 0, 0))
        affine[:3, 3] = -affine[:3, :3] @ (np.array(space) - 1) / 2
        voxels = np.indices(space).reshape(3, -1)
        values = wave(affine[:3, :3] @ voxels + affine[:3, 3:]).reshape(space)
        paths.append(save_nifti(tmp_path / f"{n}.nii", values.astype("f4"), affine))
    images = FileImages(paths)
    first, *others = images.read(EVERYTHING)[:, 0]
    assert images.voxel_size == pytest.approx((2, 2, 2))
    for other in others:
        seen = ~np.isnan(first + other)
        assert seen.sum() > 500
        assert np.abs(first - other)[seen].max() < 0.15  # linear interpolation of a wave
        assert np.corrcoef(first[seen], other[seen])[0, 1] > 0.999


def test_the_grid_is_that_of_most_files_and_is_told(as_they_come):
    odd = as_they_come[1]
    images = FileImages([odd, *as_they_come[2:]])
    assert images.grid.orientation == "RAS"
    assert "3 of 5 files are on other grids" in images.understood
    assert "12 x 10 x 8 voxels of 2 x 2 x 2 mm, axes RAS" in images.understood
    assert FileImages([as_they_come[0], as_they_come[2]]).understood is None


def test_a_file_without_a_place_says_so(tmp_path, as_they_come, caplog):
    image = nib.Nifti1Image(lopsided()[:-1], None)
    image.header.set_sform(None, code=0)
    image.header.set_qform(None, code=0)
    nib.save(image, tmp_path / "nowhere.nii.gz")
    files = [*as_they_come, tmp_path / "nowhere.nii.gz"]
    with pytest.raises(ImageError, match=r"nowhere\.nii\.gz does not say where its voxels are"):
        FileImages(files)
    with caplog.at_level(logging.WARNING):
        FileImages(files, resample=True).check(for_fit=True)
    assert "left may be right" in caplog.text


@pytest.mark.parametrize("scale", [None, "robust"])
def test_a_constant_file_is_refused_on_another_grid_as_well(tmp_path, scale):
    """What lies around it on the common grid is missing, and NaN equals nothing."""
    image = lopsided()
    files = [tmp_path / f"{n}.nii" for n in range(3)]
    for n, file in enumerate(files[:2]):
        nib.save(nib.Nifti1Image(image[n:].astype(np.float32), np.eye(4)), file)
    affine = np.diag([1.1, 1.2, 0.9, 1])
    for values, is_constant in ((np.full(image.shape, 7.25), True), (image, False)):
        nib.save(nib.Nifti1Image(values[:-2].astype(np.float32), affine), files[2])
        images = FileImages(files, scale=scale)
        if is_constant:
            with pytest.raises(ImageError, match=r"2\.nii is constant \(7\.25\): there is nothing"):
                images.check(for_fit=True)
        else:
            images.check(for_fit=True)
        images.check(for_fit=False)
    # An image of which something is not known may be constant where it is observed.
    values = np.full(image.shape, 7.0, np.float32)
    values[0] = np.nan
    nib.save(nib.Nifti1Image(values, affine), files[2])
    FileImages(files, scale=scale).check(for_fit=True)
