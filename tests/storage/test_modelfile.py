"""What a model knows of its images beyond numbers: progress, warps, and where voxels are."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry import pull
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from tests.images.filemaking import noise, save_nifti


@pytest.fixture
def images():
    return noise(6, 10, 8)


def test_progress_is_reported_after_every_iteration(images):
    seen = []
    model = ShapeAppearanceModel(2, n_iter=3).fit(images, callback=seen.append)
    assert [progress.n_done for progress in seen] == [1, 2, 3]
    assert list(seen[-1].objective) == model.objective_
    assert seen[-1].n_images == len(images)
    assert seen[-1].seconds == model.origin_.seconds
    assert seen[-1].seconds_left == 0


def test_displacement_is_what_warps_the_mean(images):
    model = ShapeAppearanceModel(2, n_iter=2).fit(images)
    displacement = model.displacement(model.latents_)
    assert displacement.shape == (len(images), 2, *images.shape[1:])
    warped = pull(np.broadcast_to(model.mean_, (len(images), *model.mean_.shape)), displacement)
    assert np.allclose(warped[:, 0], model.inverse_transform(model.latents_, part="shape"))
    flat = ShapeAppearanceModel(2, latents="appearance", n_iter=1).fit(images)
    assert not flat.displacement(flat.latents_).any()


@pytest.mark.parametrize("pad", [0, 2])
def test_a_model_of_files_knows_where_its_voxels_are(images, tmp_path, pad):
    affine = np.diag([2.0, 0.5, 1, 1])
    affine[:3, 3] = 5, -3, 1
    paths = [save_nifti(tmp_path / f"{n}.nii", image, affine) for n, image in enumerate(images)]
    files = FileImages(paths, pad=pad)
    model = ShapeAppearanceModel(2, n_iter=2).fit(files)
    model.save(tmp_path / "model")
    loaded = ShapeAppearanceModel.load(tmp_path / "model")
    assert np.array_equal(loaded.origin_.affine, files.affine)
    assert loaded.origin_.n_images == len(images)
    assert loaded.origin_.pad == pad
    assert loaded.origin_.suffix == ".nii"
    assert loaded.origin_.seconds == model.origin_.seconds
    assert np.array_equal(loaded.transform(paths), model.transform(files))


def test_files_on_another_grid_are_resampled_onto_the_model_s(images, tmp_path):
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate(images)]
    model = ShapeAppearanceModel(2, n_iter=2).fit(paths)
    moved = np.eye(4)
    moved[0, 3] = 1
    other = save_nifti(tmp_path / "other.nii", images[0], moved)
    with pytest.raises(ImageError, match=r"model's grid and .*other\.nii differ"):
        model.open_files([other], resample=False)
    resampled = model.open_files([other])
    assert np.isnan(resampled.read(slice(0, 1))[0, 0, 0]).all()
    assert model.transform(resampled).shape == (1, 2)
