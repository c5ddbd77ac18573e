"""Grids that hold others, and what the inspection of files finds."""

import numpy as np
import pytest

from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.grid import Grid
from anamorph.images.inspect import inspect_files
from tests.cli.conftest import blobs
from tests.images.filemaking import EVERYTHING, rotated_affine, save_nifti, save_picture


def corners(grid):
    axes = [(0, length - 1) for length in grid.space]
    voxels = np.array([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")])
    return grid.affine[:3, :3] @ voxels + grid.affine[:3, 3:]


@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_a_grid_that_holds_others_has_their_corners(angle):
    first = Grid((6, 7, 8), rotated_affine())
    others = [Grid((9, 5, 4), rotated_affine(angle, (1.3, 1, 0.7), (-24.0, 12.0, 3.0))), first]
    found = first.holding(others)
    assert np.allclose(found.affine[:3, :3], first.affine[:3, :3])
    shift = np.linalg.solve(found.affine, first.affine)[:3, 3]
    assert np.allclose(shift, np.rint(shift), atol=1e-6)  # voxels of the first are voxels of it
    for grid in (*others, first):
        assert grid.share_inside(found) == 1
        inside = np.linalg.solve(found.affine, np.vstack([corners(grid), np.ones(8)]))[:3]
        assert (inside > -0.6).all()
        assert (inside < np.array(found.space)[:, None] - 0.4).all()


def test_the_same_grid_needs_no_more():
    first = Grid((6, 7), rotated_affine())
    assert first.holding([first]).difference(first) is None


def test_shares_of_grids():
    one, other = np.eye(4), np.eye(4)
    other[0, 3] = 5
    assert Grid((10, 4, 4), one).share_inside(Grid((10, 4, 4), other)) == pytest.approx(0.5)
    other[0, 3] = 50
    assert Grid((10, 4, 4), one).share_inside(Grid((10, 4, 4), other)) == 0


def test_orientations_and_units_are_found(tmp_path):
    image = blobs(1, (6, 5, 4))[0]
    paths = [
        save_nifti(tmp_path / "ras.nii", image),
        save_nifti(tmp_path / "las.nii", image, np.diag([-1.0, 1, 1, 1])),
        save_picture(tmp_path / "b.png", (255 * blobs(1, (6, 5))[0]).astype(np.uint8)),
    ]
    found = inspect_files(paths)
    assert [file.orientation for file in found.files] == ["RAS", "LAS", None]
    assert [file.units for file in found.files] == ["unknown", "unknown", None]
    assert found.files[0].centre[0] == pytest.approx(-found.files[1].centre[0])
    assert any("on another grid" in remark for remark in found.remarks)


def test_files_that_cannot_be_read_are_problems_of_their_own(tmp_path):
    good = save_nifti(tmp_path / "a.nii", blobs(1, (6, 5, 4))[0])
    bad = tmp_path / "b.nii"
    bad.write_bytes(b"x" * 500)
    found = inspect_files([good, bad, tmp_path / "none.nii"])
    assert [file.path for file in found.files] == [good]
    assert len(found.problems) == 2
    assert "b.nii" in found.problems[0]
    assert "does not exist" in found.problems[1]


def test_images_without_contrast_and_copies_are_remarked_on(tmp_path):
    one, other = blobs(2, (6, 5))
    images = {"a": one, "b": other, "c": one, "d": np.full((6, 5), 0.5, np.float32)}
    for name, image in images.items():
        np.save(tmp_path / f"{name}.npy", image)
    constant, copies = inspect_files([tmp_path / f"{name}.npy" for name in images]).remarks
    assert constant.startswith("1 of 4 files hold the same value everywhere")
    assert "d.npy" in constant
    assert copies.startswith("1 of 4 images are copies of others, e.g. ")
    assert "c.npy of " in copies


def test_a_fit_is_told_of_copies(tmp_path, caplog):
    one, other = (blobs(2, (6, 5, 4)) > 0.5).astype(np.uint8) * 2
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate([one, other, one])]
    FileImages(paths, "categorical").check(for_fit=True)
    assert "1 of 3 images are copies of others" in caplog.text
    caplog.clear()
    FileImages(paths[:2], "categorical").check(for_fit=True)
    assert "copies" not in caplog.text


def test_all_that_is_found_can_be_json(tmp_path):
    path = save_nifti(tmp_path / "a.nii", np.full((4, 5, 6), np.nan, np.float32))
    (facts,) = inspect_files([path]).files
    plain = facts.plain()
    assert plain["lowest"] is None
    assert plain["missing"] == 1
    assert plain["path"] == str(path)


def test_several_types_of_integers_that_stand_for_other_values_are_refused(tmp_path):
    bright = (65535 * blobs(2, (20, 20))).astype(np.uint16)
    dark = (1000 * blobs(2, (20, 20))).astype(np.uint16)
    grey = (255 * blobs(2, (20, 20))).astype(np.uint8)
    first = save_picture(tmp_path / "a.png", grey[0])
    both = [first, save_picture(tmp_path / "b.png", bright[0])]
    read = FileImages(both).read(EVERYTHING)[:, 0]
    assert np.allclose(read[0], grey[0] / 255)
    assert np.allclose(read[1], bright[0] / 65535)
    with pytest.raises(ImageError, match=r"a\.png holds uint8 and .*c\.png holds uint16"):
        FileImages([first, save_picture(tmp_path / "c.png", dark[0])])
