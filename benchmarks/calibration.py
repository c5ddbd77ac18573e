"""How well encoding ends, and whether it is as sure as it should be, on a model's own samples.

    python -m benchmarks.calibration --data FOLDER --likelihood bernoulli

A model is fitted with a weight of 1 for the likelihood; latents are drawn from its prior, images
with noise from these, and the images encoded. Shown are how far from the optimum encoding stops,
how often the 95 % ellipsoid of a posterior holds the latents that the image was drawn with (it
should be 95 % of them), and how far evidence is from that of importance sampling.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import chi2

from anamorph import ShapeAppearanceModel, preset
from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.latents import draw_latents, log_determinant
from anamorph.model.curvature import exact_derivatives, fit_gaussian
from anamorph.model.descent import Descent
from anamorph.model.encoding import encode
from anamorph.model.generator import Generator
from anamorph.model.posterior import find_posterior
from examples.prediction.datasets import digits, t1_slices, tissue_slices

N_TRAINING = 200
_MANY, _NOTHING = 300, 1e-5  # shootings, and nats at which to end


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--likelihood", default="bernoulli")
    options.add_argument("--samples", type=int, default=300)
    options.add_argument("--draws", type=int, default=200)
    options.add_argument("--latents", type=int, default=16)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    model = fitted(given.data, given.likelihood, given.latents)
    # Not the draws of a model's own guesses, whose seed is 0: encoding would start at the truth.
    generator, draws = model.generator_, np.random.default_rng([given.seed, 1])
    latents = draw_latents(model.latent_precision_, given.samples, draws)
    images = generator.settings.likelihood.draw(
        generator.expected_images(latents), model.noise_variance_, draws
    )
    print(f"{given.likelihood}, K = {given.latents}, {given.samples} samples, seed {given.seed}")
    show_endings(generator, images)
    show_coverage(generator, images, latents, draws, given.draws)


def fitted(data: Path, likelihood: str, n_latents: int) -> ShapeAppearanceModel:
    """Return a model of real images with a likelihood."""
    arguments = {"decimation": 1.0, "n_threads": 1, "channel_axis": -1, "likelihood": likelihood}
    if likelihood == "gaussian":
        images = t1_slices(data).images[:N_TRAINING]
    elif likelihood == "categorical":
        images = tissue_slices(data).images[:N_TRAINING]
    else:
        images = digits(data).images[: 2 * N_TRAINING]
        if likelihood == "poisson":
            images = np.random.default_rng(0).poisson(8 * images).astype(np.float32)
        else:
            arguments = preset("digits") | arguments
    return ShapeAppearanceModel(**{**arguments, "n_components": n_latents}).fit(images)


def show_endings(generator: Generator, images: Array) -> None:
    """Print shootings, decrements and what is left to be gained, for some tolerances."""
    for tolerance in (0.01, 0.006, 0.003):
        encoded = encode(generator, images, tolerance=tolerance, with_covariance=True)
        n_shootings, covariance = encoded.n_shootings, encoded.covariance
        value, gradient = exact_derivatives(generator, images, encoded.latents)
        decrement = 0.5 * np.einsum("nk,nkl,nl->n", gradient, covariance, gradient)
        gain = left_to_gain(generator, images, encoded.latents, value)
        print(
            f"  tolerance {tolerance}: {n_shootings.mean():.1f} shootings ({n_shootings.max()} at "
            f"most); left to gain: median {np.median(gain):.4f}, 99 % below "
            f"{np.quantile(gain, 0.99):.4f}, above 0.01: {np.mean(gain > 0.01):.3f}; 99 % of "
            f"decrements by Gauss-Newton, which knows no kinks, below "
            f"{np.quantile(decrement, 0.99):.4f}, above 0.01: {np.mean(decrement > 0.01):.3f}",
            flush=True,
        )


def left_to_gain(
    generator: Generator, images: Array, latents: Float64Array, value: Float64Array
) -> Float64Array:
    """Return what hundreds of shootings more gain, in nats, by the better of two ways."""
    descent = Descent(generator, images, latents, value)
    descent.visit(latents)
    descent.take_steps(_MANY, _NOTHING)
    again = encode(generator, images, _MANY, _NOTHING, latents)
    refined, _ = exact_derivatives(generator, images, again.latents)
    best: Float64Array = np.maximum(np.maximum(descent.value, refined), value)
    return best - value


def show_coverage(
    generator: Generator,
    images: Array,
    truth: Float64Array,
    draws: np.random.Generator,
    n_draws: int,
) -> None:
    """Print coverage and evidence of several Gaussians."""
    plain = encode(generator, images, with_covariance=True, exact_curvature=False)
    exact = encode(generator, images, with_covariance=True)
    told = encode(generator, images, with_covariance=True, start=truth)
    values = [exact_derivatives(generator, images, each.latents)[0] for each in (exact, told)]
    is_worse = values[1] > values[0] + 0.1
    print(f"  worse optimum than from the truth: {is_worse.mean():.3f}; by more than 0.1 nats")
    gaussians = {
        "Gauss-Newton, approximate": (plain.latents, plain.covariance),
        "Gauss-Newton, exact": (exact.latents, exact.covariance),
        "Gauss-Newton, exact, from the truth": (told.latents, told.covariance),
    }
    for name, start in (("approximate", plain), ("exact", exact)):
        fitted = fit_gaussian(generator, images, start.latents, start.covariance)
        gaussians[f"fitted, from {name}"] = fitted
    both = find_posterior(generator, images, fitted=True)
    gaussians["fitted, from the better of two starts"] = (both.latents, both.covariance)
    best = gaussians["fitted, from approximate"]
    weights, samples = importance(generator, images, best, draws, n_draws)
    log_evidence = logsumexp(weights, axis=0) - np.log(n_draws)
    shares = np.exp(weights - logsumexp(weights, axis=0))
    mean = np.einsum("mn,mnk->nk", shares, samples)
    rest = samples - mean
    gaussians["importance sampling"] = (mean, np.einsum("mn,mnk,mnl->nkl", shares, rest, rest))
    effective = 1 / np.square(shares).sum(axis=0)
    print(f"  effective draws of {n_draws}: {np.median(effective):.0f} (median)")
    limit = chi2.ppf(0.95, truth.shape[1])
    for name, (centre, covariance) in gaussians.items():
        wrong = truth - centre
        distance = np.einsum(
            "nk,nk->n", wrong, np.linalg.solve(covariance, wrong[..., None])[..., 0]
        )
        value, _ = exact_derivatives(generator, images, centre)
        laplace = value + 0.5 * (
            log_determinant(generator.prior_precision) + np.linalg.slogdet(covariance)[1]
        )
        difference = laplace - log_evidence
        print(
            f"  {name:45s} covers {np.mean(distance <= limit):.3f}; mean distance^2 / K "
            f"{np.mean(distance) / truth.shape[1]:.3f}, median {np.median(distance):.1f}; evidence "
            f"less that of importance sampling {difference.mean():+.2f} "
            f"(absolute {np.abs(difference).mean():.2f})",
            flush=True,
        )


def importance(
    generator: Generator,
    images: Array,
    gaussian: tuple[Float64Array, Float64Array],
    draws: np.random.Generator,
    n_draws: int,
) -> tuple[Float64Array, Float64Array]:
    """Return log weights (draw, image) of draws from a Gaussian, and these draws."""
    mean, covariance = gaussian
    factor = np.linalg.cholesky(covariance)
    n_images, n_latents = mean.shape
    scale = 1.1  # wider than the posterior, so that weights are bounded
    xp = array_namespace(mean)
    weights, samples = xp.empty((n_draws, n_images)), xp.empty((n_draws, n_images, n_latents))
    half = 0.5 * (log_determinant(generator.prior_precision) + np.linalg.slogdet(covariance)[1])
    for m in range(n_draws):
        noise = beside(mean, draws.standard_normal((n_images, n_latents)))
        samples[m] = mean + scale * (factor @ noise[..., None])[..., 0]
        appearance = generator.appearance(samples[m])
        displacement = generator.displacement(samples[m])
        value = generator.log_likelihood(appearance, displacement, images)
        value += generator.log_prior(samples[m])
        density = -0.5 * np.square(noise).sum(axis=1) - n_latents * np.log(scale)
        weights[m] = value - density + half
    return weights, samples


if __name__ == "__main__":
    main()
