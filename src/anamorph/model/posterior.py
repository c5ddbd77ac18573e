"""What a model knows of the latents of an image: a Gaussian, by Laplace's approximation.

The expected image under all of these latents is a better prediction than the image of the most
probable ones, where warps or the likelihood bend: an edge whose place is uncertain is blurred. It
is averaged over a fixed set of draws, which come in pairs z + x and z - x, so that whatever is
linear in the latents is exact, and a prediction is the same whenever it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.curvature import fit_gaussian
from anamorph.model.encoding import encode
from anamorph.model.generator import Generator

#: Draws over which an expected image is averaged.
N_DRAWS = 16
# Nats by which another start has to be better: less is the same mode, found less exactly.
_ANOTHER_MODE = 0.1


@dataclass(frozen=True)
class Posterior:
    """Latents of images as far as they are known: z ~ N(latents, covariance).

    Attributes
    ----------
    latents : (N, K)
        The most probable ones, or their mean.
    covariance : (N, K, K)
        The inverse of the Hessian of -ln p(f, z) there, or what fits the posterior around it.
    """

    latents: Float64Array
    covariance: Float64Array

    def draws(self, noise: Float64Array) -> Iterator[Float64Array]:
        """Yield latents (N, K) for each row of white noise (M, K), the same for all images."""
        factor = np.linalg.cholesky(self.covariance)
        for row in beside(self.latents, noise):
            yield self.latents + factor @ row


def find_posterior(
    generator: Generator, images: Array, *, fitted: bool = False, exact_curvature: bool = True
) -> Posterior:
    """Return what is known of the latents of images (N, C, *space), NaN where missing.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    fitted : bool
        Whether to fit the Gaussian where the mass of the posterior is (see `curvature`), which
        takes some 8K shootings, around the better of two modes, found from two starts; by default
        it has the curvature of the first mode.
    exact_curvature : bool
        As for `encode`.
    """
    found = encode(generator, images, exact_curvature=exact_curvature, with_covariance=True)
    latents, covariance = found.latents, cast(Float64Array, found.covariance)
    if not fitted:
        return Posterior(latents, covariance)
    other = encode(
        generator, images, second_start=True, exact_curvature=exact_curvature, with_covariance=True
    )
    is_better = (other.log_evidence > found.log_evidence + _ANOTHER_MODE)[:, None]
    latents = np.where(is_better, other.latents, latents)
    covariance = np.where(is_better[..., None], cast(Float64Array, other.covariance), covariance)
    return Posterior(*fit_gaussian(generator, images, latents, covariance))


def paired_noise(n_latents: int, n_draws: int = N_DRAWS) -> Float64Array:
    """Return white noise (n_draws, K), always the same, in pairs of opposite sign."""
    half = np.random.default_rng(0).standard_normal((n_draws // 2, n_latents))
    return np.concatenate([half, -half])


def expect_images(generator: Generator, posterior: Posterior) -> tuple[Array, Array]:
    """Return the mean and the variance of E[f | z] over a posterior, each (N, C, *space)."""
    shape = (len(posterior.latents), *generator.parameters.mean.shape)
    total, squares = array_namespace(generator.parameters.mean).zeros((2, *shape))
    for latents in posterior.draws(paired_noise(posterior.latents.shape[1])):
        images = generator.expected_images(latents)
        total += images
        squares += images.astype(np.float64) ** 2
    mean = total / N_DRAWS
    return mean, np.maximum(squares / N_DRAWS - mean**2, 0)
