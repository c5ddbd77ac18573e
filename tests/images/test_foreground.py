"""Foreground of images, and quantiles that images are matched to."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.images.foreground import are_crops, find_foreground
from anamorph.images.quantiles import QuantileMap, average_quantiles, quantiles_of
from tests.images.filemaking import EVERYTHING


def head(seed=0, air=0.0, fill=0.0):
    """Return tissue of about 100 in a disc, in air with some noise."""
    draws = np.random.default_rng(seed)
    x, y = np.indices((40, 44)) - 20
    is_head = x**2 + y**2 < 14**2
    tissue = 100 + 15 * np.sin(x / 3) + 10 * np.cos(y / 4) + draws.standard_normal(x.shape)
    around = fill + np.abs(air * draws.standard_normal(x.shape))
    return np.where(is_head, tissue, around).astype(np.float32)[None], is_head


@pytest.mark.parametrize("air", [0.0, 4.0])
@pytest.mark.parametrize("fill", [0.0, -1024.0, 300.0])
def test_background_is_found_whatever_its_value(air, fill):
    image, is_head = head(air=air, fill=fill)
    found = find_foreground(image)
    assert found.size == pytest.approx(is_head.sum(), rel=0.02)
    assert np.median(found) == pytest.approx(np.median(image[0][is_head]), rel=0.02)


def test_gain_and_offset_do_not_matter():
    image, _ = head(air=4.0)
    assert np.allclose(find_foreground(3 * image - 50), 3 * find_foreground(image) - 50, atol=1e-3)


def test_a_crop_from_within_is_all_foreground():
    image, _ = head()
    crop = image[:, 12:28, 12:28]
    assert find_foreground(crop).size == crop.size
    assert find_foreground(np.full((1, 5, 5), 7.0)).size == 25
    assert find_foreground(np.zeros((1, 5, 5))).size == 0
    assert find_foreground(np.full((1, 5, 5), np.nan)).size == 0


def test_most_images_tell_whether_all_are_crops():
    image, _ = head(air=4.0)
    crop = image[:, 12:28, 12:28]
    for period, expected in ((41, False), (5, False), (2, False), (1, True)):
        assert are_crops(lambda n, p=period: crop if n % p == 0 else image, 40) == expected
    assert are_crops(lambda n: image if n == 3 else crop, 7)
    assert not are_crops(lambda n: np.full((1, 4, 4), np.nan), 3)


def gamma_of_head(seed, power, gain, offset):
    image, _ = head(seed, air=2.0)
    return (gain * image[0] ** power + offset).astype(np.float32)


CURVES = [(1, 1.0, 1, 0), (2, 1.3, 5, 20), (3, 0.8, 0.1, 0), (4, 1.1, 800, -100), (5, 0.9, 30, 0)]


def test_matched_images_have_the_same_quantiles():
    images = [gamma_of_head(*curve) for curve in CURVES]
    collection = ArrayImages(images, "gaussian", scale="match")
    read = collection.read(EVERYTHING)
    found = np.stack([quantiles_of(image) for image in read])
    assert np.allclose(found, collection.format.quantiles, rtol=0.02)
    assert collection.format.quantiles[3] == pytest.approx(1)
    for n, image in enumerate(images):
        assert np.allclose(collection.unscaled(n, read[n])[0], image, rtol=1e-3, atol=1e-2)


def test_a_map_rises_and_goes_on_beyond_its_quantiles():
    own = np.array([0.0, 1, 1, 4])
    mapping = QuantileMap.between(own, (0.0, 1.0, 2.0, 3.0))
    values = np.linspace(-5, 9, 100, dtype=np.float32)
    mapped = mapping.apply(values)
    assert (np.diff(mapped) > 0).all()
    assert np.allclose(mapping.undo(mapped), values, atol=1e-5)
    assert np.isnan(mapping.apply(np.array([np.nan], np.float32))).all()
    assert average_quantiles([np.zeros((1, 4, 4))]) is None


def test_a_model_matches_new_images_to_its_own_cohort(tmp_path):
    images = np.stack([gamma_of_head(*curve) for curve in CURVES])
    model = ShapeAppearanceModel(1, n_iter=1, n_threads=1, scale="match").fit(images)
    model.save(tmp_path / "m.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "m.safetensors")
    assert loaded.image_format_.quantiles == model.image_format_.quantiles
    one = loaded.checked_images(7 * images[:1] + 3).read(EVERYTHING)
    assert np.allclose(one, model.checked_images(images[:1]).read(EVERYTHING), atol=1e-2)
    hidden = images[:1].copy()
    hidden[0, 18:22, 18:22] = np.nan
    filled, deviations = model.impute(hidden, return_std=True)
    assert np.isfinite(filled).all()
    assert (deviations[0, 18:22, 18:22] > 0).all()
    assert np.allclose(filled[0, 10], images[0, 10], rtol=1e-3, atol=0.05)
