"""Arrays as images: scaling, channels, labels, and one line for everything that is wrong."""

import re
from pathlib import Path

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.images.errors import ImageError

EVERYTHING = slice(None)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def probabilities(*shape, n_classes=3, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(n_classes), shape)


def error_of(images, likelihood="gaussian", channel_axis=None, n_classes=None):
    with pytest.raises(ImageError) as error:
        ArrayImages(images, likelihood, channel_axis, n_classes).check(for_fit=True)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
@pytest.mark.parametrize(("dtype", "largest"), [(bool, 1), (np.uint8, 255), (np.uint16, 65535)])
def test_integer_images_are_scaled_to_one(likelihood, dtype, largest):
    raw = (noise(3, 5, 4) > 0.5) * np.array(largest, dtype)
    images = ArrayImages(raw.astype(dtype), likelihood).read(EVERYTHING)
    assert np.array_equal(images[:, 0], (raw > 0).astype(np.float32))


def test_float_images_are_what_they_are():
    raw = 100 * noise(3, 5, 4) - 50
    assert np.array_equal(
        ArrayImages(raw, "gaussian").read(EVERYTHING)[:, 0], raw.astype(np.float32)
    )


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2, -3])
def test_channels_may_be_anywhere(axis):
    raw = noise(3, 2, 5, 4)  # channels first
    images = ArrayImages(np.moveaxis(raw, 1, axis), "gaussian", axis)
    assert images.format.space == (5, 4)
    assert images.format.n_channels == 2
    assert np.array_equal(images.read(EVERYTHING), raw.astype(np.float32))
    assert np.array_equal(images.format.to_user(raw), np.moveaxis(raw, 1, axis))


def test_label_maps_become_one_channel_per_class():
    labels = np.random.default_rng(0).integers(0, 4, (3, 5, 4))
    images = ArrayImages(labels, "categorical")
    assert images.format.n_channels == 4
    assert np.array_equal(images.read(EVERYTHING).argmax(axis=1), labels)
    assert np.array_equal(images.read(EVERYTHING).sum(axis=1), np.ones((3, 5, 4)))


def test_almost_normalised_categories_are_normalised():
    bytes_ = np.round(255 * probabilities(3, 5, 4)).astype(np.uint8)
    images = ArrayImages(bytes_, "categorical", -1)
    images.check(for_fit=True)
    assert np.allclose(images.read(EVERYTHING).sum(axis=1), 1, atol=1e-6)


def test_a_categorical_voxel_is_missing_as_a_whole():
    raw = probabilities(3, 5, 4)
    raw[1, 2, 3, 0] = np.nan
    images = ArrayImages(raw, "categorical", -1).read(EVERYTHING)
    assert np.isnan(images[1, :, 2, 3]).all()
    assert np.isnan(images).sum() == 3


def test_parts_are_parts_of_the_whole():
    raw = noise(7, 5, 4).astype(np.float32)
    for given in (raw, list(raw)):
        images = ArrayImages(given, "gaussian")
        assert len(images) == 7
        assert np.array_equal(images.read(slice(2, 5)), raw[2:5, None])


def test_nothing_that_was_given_is_changed():
    raw = (255 * probabilities(3, 5, 4)).astype(np.float64) / 255
    before = raw.copy()
    images = ArrayImages(raw, "categorical", -1)
    images.check(for_fit=True)
    images.read(EVERYTHING)[:] = 0
    assert np.array_equal(raw, before)


def test_float32_images_given_are_not_changed_by_who_reads_them():
    raw = noise(3, 5, 4).astype(np.float32)
    before = raw.copy()
    ArrayImages(raw, "gaussian").read(EVERYTHING)[:] = 0
    assert np.array_equal(raw, before)


def test_images_of_different_shapes_are_named():
    text = error_of([noise(5, 4), noise(5, 4), noise(5, 6)])
    assert "image 0 is 5 x 4" in text
    assert "image 2 is 5 x 6" in text


def test_images_of_different_types_are_named():
    assert "image 1 is uint8" in error_of([noise(5, 4), np.zeros((5, 4), np.uint8)])


def with_value(value, likelihood="gaussian"):
    images = noise(3, 5, 4)
    images[1] = np.where(images[1] > 0.8, value, images[1])
    return images, likelihood


@pytest.mark.parametrize(
    ("images", "likelihood", "message"),
    [
        ([], "gaussian", "the list is empty"),
        (np.zeros((0, 5, 4)), "gaussian", "the array is empty"),
        (np.float64(3), "gaussian", "a list of arrays or a list of files, got one float64"),
        (
            1e300 * noise(3, 5, 4),
            "gaussian",
            r"image 0 has values up to 9.\d*e\+299, .* divide all",
        ),
        (noise(5), "gaussian", "2 or 3 spatial axes"),
        (noise(2, 3, 3, 3, 3), "gaussian", "2 or 3 spatial axes"),
        (np.zeros((3, 0, 4)), "gaussian", "must not be empty"),
        (*with_value(np.inf), "image 1 contains infinity"),
        (*with_value(-np.inf), "image 1 contains infinity"),
        (*with_value(1.5, "bernoulli"), "values from 0 to 1, got .* to 1.5"),
        (*with_value(-0.5, "bernoulli"), "values from 0 to 1, got -0.5"),
        (
            np.arange(60).reshape(3, 5, 4),
            "gaussian",
            "holds int64 from 0 to 59, and images must be float",
        ),
        (noise(3, 5, 4).astype(complex), "gaussian", "got complex128"),
        (noise(3, 5, 4), "categorical", "integer label maps, got float64; give channel_axis"),
        (
            -np.ones((3, 5, 4), int),
            "categorical",
            "image 0 holds -1 to -1, and labels are whole numbers from 0",
        ),
        (np.arange(300).reshape(3, 10, 10), "categorical", "image 2 .* are these label maps"),
    ],
)
def test_bad_images_are_explained(images, likelihood, message):
    assert re.search(message, error_of(images, likelihood))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("scans/a.nii", "got one path, 'scans/a.nii'"),
        (Path("a.nii"), "got one path, 'a.nii'"),
        (None, "got one NoneType"),
        ({"a": noise(5, 4)}, "got one dict"),
    ],
)
def test_what_is_no_array_is_named(given, message):
    """It was called an array that is empty."""
    assert message in error_of(given)
    with pytest.raises(ImageError, match=r"an array .*, a list of arrays or a list of files, got"):
        ShapeAppearanceModel().fit(given)


def test_generators_are_refused_whole():
    images = (image for image in noise(3, 5, 4))
    assert "got one generator" in error_of(images)
    assert len(list(images)) == 3


def test_images_that_say_nothing_are_named():
    images = noise(3, 5, 4)
    images[2] = np.nan
    assert "image 2 is all NaN" in error_of(images)
    images[2] = 7.0
    assert "image 2 is constant (7.0)" in error_of(images)


@pytest.mark.parametrize("total", [0.0, 0.5, 0.9])
def test_categories_that_do_not_sum_to_one_are_explained(total):
    images = probabilities(3, 5, 4)
    images[1] *= total
    assert "must sum to 1" in error_of(images, "categorical", -1)
    assert "image 1" in error_of(images, "categorical", -1)


def test_labels_that_a_model_does_not_know_are_explained():
    labels = np.random.default_rng(0).integers(0, 4, (3, 5, 4))
    assert "image 0 has label 3, and the model knows 0, 1, 2" in error_of(
        labels, "categorical", None, 3
    )


def test_the_axis_of_the_images_is_not_one_of_channels():
    for axis in (0, -4):
        assert "channel_axis must be an axis of X other than the first" in error_of(
            noise(3, 5, 4, 2), "gaussian", axis
        )


@pytest.mark.parametrize("axis", [4, -5, 7])
def test_axes_that_are_not_there_are_refused(axis):
    assert "channel_axis" in error_of(noise(3, 5, 4, 2), "gaussian", axis)


def test_all_nan_categories_are_named():
    images = probabilities(3, 5, 4)
    images[0] = np.nan
    assert "image 0 is all NaN" in error_of(images, "categorical", -1)


def test_bernoulli_images_may_be_mostly_missing_but_not_all():
    images = np.full((3, 5, 4), np.nan)
    images[:, 0, :2] = [0.0, 1.0]
    ArrayImages(images, "bernoulli").check(for_fit=True)
