"""Predictions over all latents that an image may have, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.model.posterior import Posterior, paired_noise

N_IMAGES, SPACE = 24, (14, 14)


def draw_images(number=N_IMAGES, seed=0):
    """Return discs of random size at random places, with noise."""
    draws = np.random.default_rng(seed)
    down, across = np.indices(SPACE)
    place, radius = draws.normal(6.5, 1, (number, 2, 1, 1)), draws.normal(4, 0.5, (number, 1, 1))
    distance = np.hypot(down - place[:, 0], across - place[:, 1])
    images = 1 / (1 + np.exp(2 * (distance - radius)))
    return (images + 0.05 * draws.standard_normal(images.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return ShapeAppearanceModel(4, n_iter=8).fit(draw_images())


def test_draws_come_in_pairs_and_are_always_the_same():
    noise = paired_noise(3, 6)
    assert np.array_equal(noise[:3], -noise[3:])
    assert np.array_equal(noise, paired_noise(3, 6))


def test_draws_have_the_covariance_of_the_posterior():
    covariance = np.array([[[2.0, 0.6], [0.6, 1.0]]])
    posterior = Posterior(np.array([[1.0, -1.0]]), covariance)
    drawn = np.concatenate(list(posterior.draws(paired_noise(2, 40000))))
    assert drawn.mean(axis=0) == pytest.approx([1, -1])
    assert np.cov(drawn.T) == pytest.approx(covariance[0], abs=0.05)


def test_latents_come_with_their_covariance(model):
    images = draw_images(5, 1)
    modes, narrow = model.transform(images, return_cov="laplace")
    assert modes == pytest.approx(model.transform(images))
    latents, covariance = model.transform(images, return_cov=True)
    assert np.abs(latents - modes).max() < 2 * np.sqrt(narrow.max())
    assert covariance.shape == narrow.shape == (5, 4, 4)
    with pytest.raises(ValueError, match="return_cov must be True, False or 'laplace'"):
        model.transform(images, return_cov="exact")
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    hidden = images.copy()
    hidden[:, :, 5:] = np.nan
    _, wider = model.transform(hidden, return_cov=True)
    assert (np.trace(wider, axis1=1, axis2=2) > np.trace(covariance, axis1=1, axis2=2)).all()


def test_expected_images_of_a_posterior_approach_those_of_certain_latents(model):
    latents = np.random.default_rng(0).standard_normal((3, 4))
    certain = model.inverse_transform(latents)
    nearly = model.inverse_transform(latents, covariance=np.tile(1e-10 * np.eye(4), (3, 1, 1)))
    blurred = model.inverse_transform(latents, covariance=np.tile(np.eye(4), (3, 1, 1)))
    assert nearly == pytest.approx(certain, abs=1e-4)
    assert np.abs(blurred - certain).max() > 1e-2
    with pytest.raises(ValueError, match=r"covariance must have shape \(3, 4, 4\)"):
        model.inverse_transform(latents, covariance=np.eye(4))
    with pytest.raises(ValueError, match="part must be 'both'"):
        model.inverse_transform(latents, "shape", covariance=np.tile(np.eye(4), (3, 1, 1)))


def test_imputed_voxels_come_with_deviations_that_are_about_right(model):
    images = draw_images(60, 2)
    hidden = images.copy()
    hidden[:, 3:10, 7:] = np.nan
    filled, deviations = model.impute(hidden, return_std=True)
    is_missing = np.isnan(hidden)
    assert np.array_equal(filled[~is_missing], images[~is_missing])
    assert (deviations[~is_missing] == 0).all()
    assert (deviations[is_missing] > 0).all()
    standardised = (images - filled)[is_missing] / deviations[is_missing]
    assert 0.5 < np.sqrt(np.square(standardised).mean()) < 2
    assert np.array_equal(model.impute(hidden), filled)


def test_deviations_of_what_is_binary_are_those_of_its_probability():
    """What latents do not know was counted twice: deviations were up to .66."""
    images = (draw_images(40, 4) > 0.5).astype(np.float32)
    hidden = images[24:].copy()
    hidden[:, :, 6:] = np.nan
    model = ShapeAppearanceModel(4, likelihood="bernoulli", n_iter=4).fit(images[:24])
    filled, deviations = model.impute(hidden, return_std=True)
    is_missing = np.isnan(hidden)
    expected = np.sqrt(filled * (1 - filled))[is_missing]
    assert deviations[is_missing] == pytest.approx(expected, rel=1e-3, abs=1e-5)
    arguments = {"likelihood": "categorical", "channel_axis": -1, "n_iter": 4}
    maps = np.stack([images, 1 - images], axis=-1)[:24]
    model = ShapeAppearanceModel(4, **arguments).fit(maps)
    _, deviations = model.impute(np.stack([hidden, 1 - hidden], axis=-1), return_std=True)
    assert 0.4 < deviations.max() <= 0.5


def test_samples_of_a_posterior_vary_where_the_image_is_hidden(model):
    hidden = draw_images(2, 3)
    hidden[:, 3:10, 7:] = np.nan
    images, latents = model.sample_posterior(hidden, 20, random_state=0)
    assert images.shape == (40, *SPACE)
    assert latents.shape == (40, 4)
    spread = images.reshape(20, 2, *SPACE).std(axis=0)
    is_missing = np.isnan(hidden)
    assert spread[is_missing].mean() > spread[~is_missing].mean()
    again, _ = model.sample_posterior(hidden, 20, random_state=0)
    assert np.array_equal(images, again)


def test_a_given_weight_is_the_weight_of_predictions_too():
    fixed = ShapeAppearanceModel(2, n_iter=2, decimation=0.25).fit(draw_images())
    assert fixed.settings_.for_prediction.decimation == 0.25
    assert fixed.settings_.prediction_weight is None


def test_a_weight_that_changes_after_the_fit_is_refused(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.settings_ == model.settings_
    with pytest.warns(UserWarning, match="cannot change in a fitted model"):
        loaded.set_params(decimation=0.1)
    for use in (loaded.transform, loaded.impute, loaded.score):
        with pytest.raises(ValueError, match="decimation was 'auto' when the model was fitted"):
            use(draw_images(2))
    with pytest.warns(UserWarning, match="cannot change in a fitted model"):
        loaded.set_params(decimation="auto")
    loaded.transform(draw_images(2))


def test_new_images_have_the_prior_that_samples_have(model):
    assert np.array_equal(model.generator_.prior_precision, model.latent_precision_)
