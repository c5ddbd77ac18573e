"""Gaussians fitted to posteriors: exact where a posterior is one, and honest where it is not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from anamorph.latents import draw_latents
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.curvature import exact_derivatives, fit_gaussian
from anamorph.model.generator import Generator
from anamorph.model.posterior import find_posterior
from tests import simulated

every_likelihood = pytest.mark.parametrize("likelihood", sorted(LIKELIHOODS))


def model_and_samples(likelihood, layout, n_samples, n_components=3):
    """Return a model with the prior of its samples, latents, and images with noise."""
    settings, parameters, *_ = simulated.random_problem(
        likelihood, layout, n_components=n_components
    )
    generator = Generator(replace(settings, balance=(1.0, 0.0)), parameters)
    draws = np.random.default_rng(0)
    latents = draw_latents(parameters.latent_precision, n_samples, draws)
    expected = generator.expected_images(latents)
    images = settings.likelihood.draw(expected, 1 / parameters.noise_precision, draws)
    return generator, latents, images


@every_likelihood
def test_derivatives_are_those_of_the_value(likelihood):
    """Those of warps have tests of their own, away from the kinks of interpolation."""
    generator, latents, images = model_and_samples(likelihood, "appearance", 5)
    value, gradient = exact_derivatives(generator, images, latents)
    step = 1e-2 * np.random.default_rng(1).standard_normal(latents.shape)
    ahead, behind = (exact_derivatives(generator, images, latents + s)[0] for s in (step, -step))
    expected = np.sum(gradient * step, axis=1)
    assert (ahead - behind) / 2 == pytest.approx(expected, abs=0.02 * np.abs(expected).max() + 1e-3)
    assert np.isfinite(value).all()


def test_without_warps_and_with_gaussian_noise_laplace_is_exact():
    generator, _, images = model_and_samples("gaussian", "appearance", 6)
    laplace, fitted = (find_posterior(generator, images, fitted=some) for some in (False, True))
    assert fitted.latents == pytest.approx(laplace.latents, abs=1e-3)
    assert fitted.covariance == pytest.approx(laplace.covariance, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "categorical"])
def test_mean_and_variance_of_one_latent_are_nearer_those_of_the_integral(likelihood):
    generator, _, images = model_and_samples(likelihood, "appearance", 12, n_components=1)
    images[:, :, 3:] = np.nan  # little is known: posteriors are skewed
    laplace, fitted = (find_posterior(generator, images, fitted=some) for some in (False, True))
    spread = np.sqrt(laplace.covariance[:, 0, 0])
    grid = np.linspace(-8, 8, 801)
    density = np.stack(
        [
            exact_derivatives(generator, images, laplace.latents + (x * spread)[:, None])[0]
            for x in grid
        ]
    )
    density = np.exp(density - density.max(axis=0))
    density /= density.sum(axis=0)
    mean = (grid[:, None] * density).sum(axis=0)
    variance = ((grid[:, None] - mean) ** 2 * density).sum(axis=0)

    def errors(posterior):
        shift = (posterior.latents - laplace.latents)[:, 0] / spread
        share = posterior.covariance[:, 0, 0] / spread**2
        return np.abs(shift - mean).mean(), np.abs(share / variance - 1).mean()

    for ours, before in zip(errors(fitted), errors(laplace), strict=True):
        assert ours < max(0.8 * before, 0.01)


@every_likelihood
def test_ellipsoids_hold_the_latents_of_the_models_own_samples(likelihood):
    generator, latents, images = model_and_samples(likelihood, "joint", 600)
    found = find_posterior(generator, images, fitted=True)
    wrong = latents - found.latents
    distance = (wrong * np.linalg.solve(found.covariance, wrong[..., None])[..., 0]).sum(axis=1)
    # The standard error of a share of 95 % of 600 is 0.9 %.
    assert 0.93 < np.mean(distance < chi2.ppf(0.95, latents.shape[1])) < 0.97


def test_means_and_covariances_do_not_depend_on_the_company_of_an_image():
    generator, _, images = model_and_samples("bernoulli", "joint", 4)
    together = find_posterior(generator, images, fitted=True)
    alone = fit_gaussian(
        generator, images[2:3], *(getattr(find_posterior(generator, images[2:3]), name)
                                  for name in ("latents", "covariance"))
    )  # fmt: skip
    assert together.latents[2] == pytest.approx(alone[0][0], abs=2e-3)
    assert together.covariance[2] == pytest.approx(alone[1][0], rel=1e-2, abs=1e-4)
