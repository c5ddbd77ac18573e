"""Intensities that differ between images: warned about, refused where absurd, and scaled."""

import logging

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.images.errors import ImageError
from anamorph.images.facts import remark_on_brightness
from anamorph.images.files import FileImages
from anamorph.images.foreground import find_foreground
from anamorph.images.intensity import checked_scale, find_scaling, typical_intensity
from tests.cli.conftest import blobs
from tests.images.filemaking import EVERYTHING, noise, save_nifti


def scans(*factors):
    images = 1 + blobs(len(factors), (8, 9))
    return images * np.array(factors, np.float32)[:, None, None]


@pytest.fixture(params=["arrays", "files"])
def opened(request, tmp_path):
    """Return a function that opens images in memory or from files."""

    def open_images(images, **options):
        if request.param == "arrays":
            return ArrayImages(images, "gaussian", **options)
        paths = [
            save_nifti(tmp_path / f"image {n}.nii.gz", image) for n, image in enumerate(images)
        ]
        return FileImages(paths, **options)

    return open_images


def test_odd_intensities_are_named(opened, caplog):
    opened(scans(1, 1.1, 40, 0.9, 0.02, 1)).check(for_fit=True)
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelno == logging.WARNING
    assert "2 of 6 images differ from most others more than 10 times" in text
    for name in ("image 2", "image 4"):
        assert name in text
    assert "image 1" not in text
    assert "--scale robust" in text


def test_intensities_that_are_alike_are_not_mentioned(opened, caplog):
    opened(scans(1, 1.1, 3, 0.4)).check(for_fit=True)
    assert not caplog.records


def test_a_federation_is_told_of_intensities_for_which_its_penalties_are_not_meant(opened, caplog):
    """A model of scans with tissue at 500 had latents of 1e-11, and nothing was said."""
    images = opened(scans(500, 400, 600))
    images.check(for_fit=True)
    assert not caplog.records  # penalties of a fit on one machine follow the images
    assert "typical intensities are" in remark_on_brightness(images.typical)
    scaled = opened(scans(500, 400, 600), scale=500)
    scaled.check(for_fit=True)
    assert remark_on_brightness(scaled.typical) is None
    assert remark_on_brightness(None) is None


def test_absurd_intensities_are_refused(opened):
    with pytest.raises(ImageError, match=r"image 1.*--scale robust"):
        opened(scans(1, 2e5, 1, 1)).check(for_fit=True)


def test_one_image_that_is_not_from_zero_to_one_is_refused(opened):
    images = blobs(5, (8, 9))
    images[3] *= 800  # one int16 file among others
    with pytest.raises(ImageError, match=r"most images hold 0 to 1, but .*image 3.* do not"):
        opened(images).check(for_fit=True)


def test_integers_among_floats_are_refused(tmp_path):
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate(blobs(4, (8, 9)))]
    one = (900 * blobs(1, (8, 9))[0]).astype(np.int16)
    paths.append(save_nifti(tmp_path / "raw.nii", one))
    with pytest.raises(ImageError, match=r"most images hold 0 to 1, but .*raw\.nii"):
        FileImages(paths).check(for_fit=True)


@pytest.mark.parametrize("scale", ["robust", "zscore", "match"])
def test_scaling_makes_images_alike(opened, scale, caplog):
    images = scans(1, 1000, 0.01, 70)
    collection = opened(images, scale=scale)
    collection.check(for_fit=True)
    assert not caplog.records
    scaled = collection.read(EVERYTHING)[:, 0]
    expected = opened(scans(1, 1, 1, 1), scale=scale).read(EVERYTHING)[:, 0]
    assert np.allclose(scaled, expected, atol=1e-4)
    typical = [typical_intensity(image[None]) for image in scaled]
    if scale == "robust":
        assert np.allclose(typical, 1, atol=1e-5)
    elif scale == "zscore":
        foreground = [find_foreground(image[None]) for image in scaled]
        assert np.allclose([values.mean() for values in foreground], 0, atol=1e-4)
        assert np.allclose([values.std() for values in foreground], 1, atol=1e-4)


def test_a_number_divides(opened):
    images = scans(1, 2)
    assert np.allclose(opened(images, scale=4).read(EVERYTHING)[:, 0], images / 4)


def test_new_images_are_scaled_as_those_of_the_fit(tmp_path):
    images = scans(1, 1000, 0.01, 70, 5)
    model = ShapeAppearanceModel(2, n_iter=1, n_threads=1, scale="robust").fit(images)
    model.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.scale == loaded.image_format_.scale == "robust"
    assert np.allclose(loaded.transform(images), loaded.transform(1e3 * images), atol=1e-3)


def test_new_images_of_other_intensity_are_warned_about(caplog):
    model = ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(scans(1, 1, 1, 1))
    model.transform(scans(1, 1))
    assert not caplog.records
    model.transform(scans(1, 40))
    assert "image 1 (" in caplog.text
    assert "differ from those of the model" in caplog.text
    with pytest.raises(ImageError, match="image 0"):
        model.transform(scans(1e6))


def test_images_opened_otherwise_than_the_model_says_are_refused():
    images = ArrayImages(scans(1, 1, 1), "gaussian", scale="zscore")
    with pytest.raises(ValueError, match="scale must be 'zscore', as the images were opened with"):
        ShapeAppearanceModel(1, scale="robust").fit(images)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "categorical"])
def test_only_intensities_are_scaled(likelihood):
    labels = np.random.default_rng(0).integers(0, 2, (3, 5, 5))
    with pytest.raises(ImageError, match="scale"):
        ArrayImages(labels, likelihood, scale="robust")


@pytest.mark.parametrize("value", ["sharp", 0, -1, np.nan, np.inf, True, [1]])
def test_other_scales_are_refused(value):
    with pytest.raises(
        ValueError, match="scale must be one of none, robust, zscore, match, or a positive"
    ):
        checked_scale(value)


def test_typical_intensity_ignores_background_and_hot_voxels():
    tissue = 100 + 10 * noise(40, 40)
    expected = np.median(tissue)
    image = np.zeros((80, 80), np.float32)
    image[:40, :40] = tissue
    image[50:] = 3 * noise(30, 80)  # the noise of air
    image[0, :8] = 1e6
    assert typical_intensity(image[None]) == pytest.approx(expected, rel=0.02)
    image[image == 0] = np.nan
    assert typical_intensity(image[None]) == pytest.approx(expected, rel=0.02)


def test_an_image_without_foreground_cannot_be_scaled():
    with pytest.raises(ImageError, match="image 7 cannot be scaled"):
        find_scaling(np.zeros((1, 4, 4), np.float32), "robust", "image 7")


@pytest.mark.parametrize("scale", ["robust", "zscore", 50.0])
def test_imputed_images_have_their_own_intensities(opened, scale):
    images = scans(1, 1000, 0.01, 70, 5)
    model = ShapeAppearanceModel(2, n_iter=1, n_threads=1, scale=scale)
    holes = images.copy()
    holes[:, 3:5, 3:5] = np.nan
    known = ~np.isnan(holes)
    if scale == 50.0:  # all alike
        holes, images = scans(1, 1, 1, 1, 1), scans(1, 1, 1, 1, 1)
        holes[~known] = np.nan
    imputed = model.fit(opened(holes, scale=scale)).impute(opened(holes, scale=scale))
    assert np.allclose(imputed[known], images[known], rtol=1e-4)
    factors = imputed[~known].reshape(5, -1).mean(axis=1) / np.median(images, axis=(1, 2))
    assert ((factors > 0.3) & (factors < 3)).all()


def test_images_of_another_type_are_told_where_all_are_brighter(caplog):
    """Slices of 8 bits, and the same in 16 bits times 4: latents were far off without a word."""
    images = np.rint(255 * blobs(8, (12, 10))).astype(np.uint8)
    model = ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(images)
    caplog.clear()
    model.transform(images.astype(np.uint16) * 4)
    assert "typical intensities of these images are 4 times those of the model" in caplog.text
    caplog.clear()
    model.transform(images)
    model.transform(images[:2].astype(np.uint16) * 4)  # two may well be unlike others
    assert caplog.text == ""
