"""Gain, offset and smooth field of images: found where these are compared with what is expected."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry.coarsen import coarsened_with_spread
from anamorph.model.cosines import Cosines
from anamorph.model.intensity import match_intensities
from tests.cli.conftest import blobs

NOISE = 0.05


def scene(space, seed=0):
    draws = np.random.default_rng(seed)
    expected = 1 + draws.random((3, 2, *space)).astype(np.float32)
    return draws, expected, expected + NOISE * draws.standard_normal(expected.shape)


def of_each(values, images):
    return np.reshape(values, (-1, *(1,) * (images.ndim - 1)))


@pytest.mark.parametrize("space", [(20, 24), (9, 10, 11)])
def test_sums_with_cosines_are_those_of_the_fields(space):
    cosines = Cosines(space, 3, np)
    fields = np.stack([cosines.combined(row[None])[0] for row in np.eye(cosines.number)])
    assert np.allclose(fields[0], 1)
    images = np.random.default_rng(0).random((2, *space)).astype(np.float32)
    flat, rows = fields.reshape(len(fields), -1), images.reshape(2, -1)
    assert np.allclose(cosines.sums(images), rows @ flat.T, rtol=1e-4, atol=1e-2)
    pairs = np.einsum("nx,jx,kx->njk", rows, flat, flat)
    assert np.allclose(cosines.gram(images), pairs, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("space", [(40, 44), (16, 14, 15)])
def test_gain_offset_and_field_are_recovered(space):
    draws, expected, images = scene(space)
    cosines = Cosines(space, 3, np)
    weights = draws.normal(0, 0.05, (6, cosines.number)) * (cosines.squared_orders < 3)
    weights[:, 0] = 0
    field = np.exp(cosines.combined(weights)).reshape(images.shape)
    gain, offset = of_each([0.5, 1, 2], images), of_each([0.3, 0, -0.5], images)
    seen = (gain * field * images + offset).astype(np.float32)
    seen[0, :, :4] = np.nan
    matched = match_intensities(seen, expected, np.full(2, NOISE**-2), "smooth")
    wrong = np.sqrt(np.nanmean((matched.images - expected) ** 2, axis=tuple(range(1, seen.ndim))))
    assert np.allclose(wrong, NOISE, rtol=0.1)
    assert np.abs(matched.gain * gain * field - 1).max() < 0.1
    assert np.array_equal(np.isnan(matched.images), np.isnan(seen))
    assert np.allclose(matched.undone(matched.images), seen, atol=1e-5, equal_nan=True)
    level = match_intensities(seen, expected, np.full(2, NOISE**-2), "per image")
    assert np.nanmean((level.images - expected) ** 2) > 2 * NOISE**2


@pytest.mark.parametrize("kind", ["per image", "smooth"])
def test_what_is_found_is_a_maximum(kind):
    """Derivatives by what is expected are those of the matched image: the rest is at a maximum."""
    draws, expected, images = scene((14, 12))
    images = (1.7 * images - 0.4).astype(np.float32)
    precision = np.full(2, NOISE**-2)

    def value(a):
        matched = match_intensities(images, a.astype(np.float32), precision, kind)
        squares = precision[0] * np.square(matched.images - a).sum(axis=(1, 2, 3))
        return matched.log_density - squares / 2

    direction = draws.standard_normal(expected.shape)
    step = 1e-2
    slope = (value(expected + step * direction) - value(expected - step * direction)) / (2 * step)
    matched = match_intensities(images, expected, precision, kind)
    predicted = (precision[0] * (matched.images - expected) * direction).sum(axis=(1, 2, 3))
    assert np.allclose(slope, predicted, rtol=1e-2, atol=2)


@pytest.mark.parametrize(("level", "factor"), [(0, 3), (50, 1.01)])
def test_gain_and_offset_are_exact(level, factor):
    """Of gain, offset and what is expected, pooled and federated fits must find the same.

    Around a large level a change of the gain is mostly a change of the level.
    """
    _, expected, images = scene((9, 8))
    expected, images = (one + np.float32(level) for one in (expected, images))
    images = (factor * (images + 5 / 3)).astype(np.float32)
    precision = np.full(2, NOISE**-2)
    matched = match_intensities(images, expected, precision, "per image")
    n, gain, offset = 72, matched.gain[:, :, 0, 0].astype(float), matched.offset[:, :, 0, 0]

    def value(log_gain, offset):
        shifted = images + np.float64(offset)[..., None, None]
        squares = np.square(np.exp(log_gain)[..., None, None] * shifted - expected).sum(axis=(2, 3))
        weak = np.square(offset / (0.3 * images.std(axis=(2, 3)))) + np.square(log_gain / 0.1)
        return n * log_gain - precision * squares / 2 - weak / 2

    best, step = value(np.log(gain), offset), 1e-2
    for change in (-step, step):
        assert (value(np.log(gain) + change, offset) < best).all()
        assert (value(np.log(gain), offset + change) < best).all()
    slope = value(np.log(gain) + 1e-3, offset) - value(np.log(gain) - 1e-3, offset)
    curvature = best * 2 - value(np.log(gain) + step, offset) - value(np.log(gain) - step, offset)
    assert np.abs(slope / 2e-3 / (curvature / step**2)).max() < 1e-5  # error of ln g


@pytest.mark.parametrize("kind", ["per image", "smooth"])
def test_averaged_images_have_the_gains_of_whole_ones(kind):
    """For what is expected to be constant within cells, the coarse grid loses nothing."""
    draws, coarse, _ = scene((10, 12))
    expected = coarse.repeat(2, axis=2).repeat(2, axis=3)
    images = (expected + 0.3 * draws.standard_normal(expected.shape)).astype(np.float32)
    whole = match_intensities(images, expected, np.full(2, 11.0), kind)
    means, spread = coarsened_with_spread(images, (10, 12))
    few = match_intensities(means, coarse, np.full(2, 11.0), kind, spread)
    blind = match_intensities(means, coarse, np.full(2, 11.0), kind)
    away = [np.abs(np.log(some.gain.mean() / whole.gain.mean())) for some in (few, blind)]
    assert away[0] < 0.1 * away[1]
    squares = np.square(whole.images - expected).sum(axis=(2, 3)) / 4
    again = np.square(few.images - coarse).sum(axis=(2, 3)) + few.unresolved
    assert np.allclose(again, squares, rtol=0.05)


def test_constant_and_empty_channels_are_left_alone():
    images = np.ones((2, 1, 6, 6), np.float32)
    images[1] = np.nan
    matched = match_intensities(images, images * 0 + 1, np.ones(1), "per image")
    assert np.allclose(matched.images[0], 1, atol=0.1)  # a prior holds it
    assert np.isnan(matched.images[1]).all()
    assert np.isfinite(matched.log_density).all()


@pytest.fixture(scope="module", params=["per image", "smooth"])
def fitted(request):
    images = 0.2 + blobs(14, (16, 14))
    model = ShapeAppearanceModel(2, n_iter=4, n_threads=1, intensity=request.param)
    return model.fit(images[:10]), images[10:]


def disturbed(images):
    gain, offset = of_each([0.5, 0.8, 1.4, 2.0], images), of_each([0.2, -0.3, 0.1, 0.4], images)
    return gain * images + offset


def test_latents_do_not_depend_on_gain_and_offset(fitted):
    model, images = fitted
    assert np.allclose(model.transform(disturbed(images)), model.transform(images), atol=0.02)
    plain = ShapeAppearanceModel(2, n_iter=4, n_threads=1).fit(images)
    assert np.abs(plain.transform(disturbed(images)) - plain.transform(images)).max() > 0.5


def test_a_fit_to_scans_of_any_gain_is_that_to_the_originals(fitted):
    model, _ = fitted
    images = 0.2 + blobs(14, (16, 14))[:10]
    gains = 2 ** np.random.default_rng(0).uniform(-1, 1, (10, 1, 1))
    again = ShapeAppearanceModel(2, n_iter=4, n_threads=1, intensity=model.intensity)
    again.fit(gains * images)
    together = np.corrcoef(again.latents_.T, model.latents_.T)[:2, 2:]
    assert np.linalg.svd(together)[1].min() > 0.98  # but for a turn of the axes
    assert np.all(np.diff(model.objective_) > -1e-6 * np.abs(model.objective_[-1]))


def test_images_come_back_in_their_own_intensities(fitted):
    model, images = fitted
    seen = disturbed(images).astype(np.float32)
    explained = model.reconstruct(seen)
    assert np.abs(explained - seen).mean() < 0.25 * seen.std(axis=(1, 2)).mean()
    hidden = seen.copy()
    hidden[:, 5:8, 5:8] = np.nan
    filled, deviations = model.impute(hidden, return_std=True)
    wrong = (filled - seen)[:, 5:8, 5:8]
    assert np.abs(wrong).mean() < 0.5 * np.abs(seen[:, 5:8, 5:8] - seen.mean()).mean()
    ratio = deviations[3, 5:8, 5:8].mean() / deviations[0, 5:8, 5:8].mean()
    assert 2 < ratio < 8  # gains of 2 and of a half


def test_no_image_is_more_probable_for_being_dark_or_constant(fitted):
    model, images = fitted
    scores = model.score_samples(images)
    changes = model.score_samples(disturbed(images)) - scores
    assert np.abs(changes).max() < 50  # by the priors; half the gain counted 155 for itself
    faint = 0.3 + 1e-4 * np.random.default_rng(0).standard_normal(images.shape)
    for nothing in (np.full_like(images, 0.3), faint):
        assert model.score_samples(nothing).max() < scores.min() - 50


def test_the_background_is_as_bright_as_it_was():
    """Where the template has ended, images are compared as they are, whatever their gain."""
    images = np.zeros((8, 20, 18), np.float32)
    objects = 1 + blobs(8, (18, 16)) + np.linspace(0, 0.6, 8)[:, None, None]
    images[:, 1:-1, 1:-1] = objects
    options = {"align": "translation", "intensity": "per image", "n_threads": 1}
    model = ShapeAppearanceModel(1, n_iter=3, **options).fit(images)
    moved = np.zeros_like(images)
    moved[:, 1:-1, :12] = objects[:, :, 4:]
    explained = model.reconstruct(moved)[:, :, -3:]
    assert np.abs(explained).max() < 1e-3
    hidden = moved.copy()
    hidden[:, :, -2:] = np.nan
    assert np.abs(model.impute(hidden)[:, :, -2:]).max() < 1e-3


def test_a_model_keeps_how_intensities_are_treated(fitted, tmp_path):
    model, images = fitted
    model.save(tmp_path / "m.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "m.safetensors")
    assert loaded.settings_.intensity == model.intensity
    assert np.allclose(loaded.transform(images), model.transform(images), atol=1e-5)


def test_only_intensities_have_a_gain():
    images = np.random.default_rng(0).random((5, 6, 6)) < 0.5
    with pytest.raises(ValueError, match="intensity must be 'global' where likelihood='bernoulli'"):
        ShapeAppearanceModel(1, likelihood="bernoulli", intensity="smooth").fit(images)
    with pytest.raises(ValueError, match="intensity must be one of"):
        ShapeAppearanceModel(1, intensity="local").fit(images)
