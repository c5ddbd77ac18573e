"""Default penalties of images with noise follow the images: units of them do not matter."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.model.scaled_penalties import gradient_energy
from tests.cli.conftest import blobs


def fitted(images, **changes):
    return ShapeAppearanceModel(2, **{"n_iter": 3, "n_threads": 1} | changes).fit(images)


@pytest.fixture(scope="module")
def images():
    return blobs(8, (12, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def usual(images):
    found = fitted(images)
    assert np.abs(found.latents_).max() > 0.1
    return found


@pytest.mark.parametrize("factor", [1e-7, 1 / 250, 500])
def test_units_of_intensity_do_not_matter(images, usual, factor):
    """Images from 0 to 500 had latents of the order of 1e-11."""
    found = fitted(factor * images)
    assert np.allclose(found.latents_, usual.latents_, atol=1e-3)
    expected = factor * usual.inverse_transform(usual.latents_)
    assert np.allclose(found.inverse_transform(found.latents_), expected, atol=1e-3 * factor)


def test_units_of_channels_may_differ(images):
    """With a ratio of a million, the noise of the smaller channel was 30 times its error."""
    both, units = np.stack([images, np.roll(images, 3, axis=1)], axis=-1), np.float32([1e3, 1e-3])
    alike, found = fitted(both, channel_axis=-1), fitted(both * units, channel_axis=-1)
    assert np.allclose(found.noise_variance_ / units**2, alike.noise_variance_, rtol=0.3)


@pytest.mark.parametrize("size", [2.0, 0.001])
def test_units_of_length_do_not_matter(images, usual, size):
    found = fitted(images, voxel_size=(size, size))
    assert np.allclose(found.latents_, usual.latents_, atol=1e-3)


def test_sides_of_voxels_matter(images):
    longer = fitted(images, voxel_size=(1, 3))
    assert np.allclose(fitted(images, voxel_size=(2, 6)).latents_, longer.latents_, atol=1e-3)
    assert not np.allclose(fitted(images).latents_, longer.latents_, atol=1e-2)


def test_numbers_that_are_given_stay(images, usual, tmp_path):
    given = {"appearance_penalty": (1, 2, 3), "shape_penalty": (1, 2, 3, 4, 5)}
    found = fitted(500 * images, voxel_size=(2, 2), **given).settings_
    assert found.appearance_penalty == (1, 2, 3)
    assert found.shape_penalty == (1, 2, 3, 4, 5)
    # 500^2 weaker for intensities, and 2^2 firmer for the stretching of voxels of 2.
    ratio = np.divide(usual.settings_.mean_penalty, found.mean_penalty)
    assert np.allclose(ratio, np.divide(500**2, (1, 4, 16)), rtol=1e-5)
    usual.save(tmp_path / "model")
    assert ShapeAppearanceModel.load(tmp_path / "model").settings_ == usual.settings_


def test_penalties_without_units_stay(images):
    plain = fitted(images, likelihood="bernoulli", n_iter=1)
    scaled = fitted(images / 2, likelihood="bernoulli", n_iter=1, voxel_size=(2, 2))
    assert plain.settings_.appearance_penalty == scaled.settings_.appearance_penalty
    assert plain.settings_.shape_penalty == scaled.settings_.shape_penalty


def energy_of(images, voxel_size=(1, 1)):
    return gradient_energy(ArrayImages(images, "gaussian"), np.asarray(voxel_size, np.float64))


def test_gradients_are_those_of_what_is_observed():
    rows, columns = np.mgrid[:9, :7].astype(np.float32)
    slope = np.stack([3 * rows + 4 * columns] * 2)
    assert np.isclose(energy_of(slope), 25)
    slope[0, 4:] = np.nan
    assert np.isclose(energy_of(slope), 25)
    slope[:, 6:] = np.nan
    assert np.isclose(energy_of(slope, (3, 0.5)), 1 + 64)


def test_noise_of_images_has_little_energy_and_a_flat_mean_some_of_it():
    rows, _ = np.mgrid[:30, :30].astype(np.float32)
    noise = np.random.default_rng(0).standard_normal((60, 30, 30)).astype(np.float32)
    assert np.isclose(energy_of(2 * rows + noise), 4, rtol=0.02)
    assert np.isclose(energy_of(np.stack([rows, -rows])), 0.1)
