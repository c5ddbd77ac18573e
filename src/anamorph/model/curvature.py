"""Gaussians that fit a posterior where its mass is, not only at its mode.

Laplace's approximation takes the curvature of U(z) = -ln p(f, z) at the mode. With K latents,
though, nearly all of the mass is about K^(1/2) standard deviations away from it, and there the
warps, and likelihoods other than that of Gaussian noise, bend U differently. The Gaussian N(m, S)
that is nearest to a posterior (in the sense of variational inference) has

    E[dU/dz] = 0,   S^-1 = E[d^2U/dz^2],   expectations under N(m, S).

Both are found from exact gradients g at 2K points m +- K^(1/2) L q_k, where L L' = S and q_k are
the columns of a rotation: that integrates polynomials of degree three exactly (the cubature of
an unscented transform), and S^-1 is the average curvature between each pair of points.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.generator import Generator

_SEED = 0
# Curvature may be so many times that of the mode, or one over it: more says that the points have
# left what one Gaussian can describe.
_MOST_CHANGE = 4.0
_LONGEST_SHIFT = 1.0  # of the mean from the mode, in standard deviations


def exact_derivatives(
    generator: Generator, images: Array, latents: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return ln p(f | z) - z'Pz/2, (N,), and its exact derivative with respect to z, (N, K).

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents : (N, K)
    """
    appearance, path = generator.appearance(latents), generator.record(latents)
    displacement = None if path is None else path.displacement
    warped = generator.warped_derivatives(appearance, displacement, images)
    if path is None:
        gradient, _ = generator.latent_derivatives(appearance, warped)
    else:
        everyone = array_namespace(latents).arange(len(latents))
        gradient = generator.exact_gradient(path, appearance, warped.gradient, everyone)
    value = warped.log_likelihood + generator.log_prior(latents)
    return value, -gradient - latents @ generator.prior_of(latents)


def rotation(n_latents: int) -> Float64Array:
    """Return a random rotation (K, K), always the same."""
    noise = np.random.default_rng(_SEED).standard_normal((n_latents, n_latents))
    orthogonal: Float64Array = np.linalg.qr(noise)[0]
    return orthogonal


def average_curvature(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    covariance: Float64Array,
    length: float | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Return the mean (N, K) and the covariance (N, K, K) of a Gaussian that fits better.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents : (N, K)
        Modes of the posterior.
    covariance : (N, K, K)
        By Laplace's approximation.
    length : float, optional
        How many standard deviations from the mode points are; by default K^(1/2).
    """
    n_latents = latents.shape[1]
    length = float(np.sqrt(n_latents)) if length is None else length
    axes = np.linalg.cholesky(covariance) @ beside(latents, rotation(n_latents))
    _, here = exact_derivatives(generator, images, latents)
    curvature = np.empty_like(covariance)  # in units of the axes: about the identity
    total = here - n_latents / length**2 * here  # E[-dU/dz]
    for k in range(n_latents):
        step = length * axes[:, :, k]
        _, ahead = exact_derivatives(generator, images, latents + step)
        _, behind = exact_derivatives(generator, images, latents - step)
        change = (behind - ahead) / (2 * length)
        curvature[:, :, k] = (axes.swapaxes(1, 2) @ change[..., None])[..., 0]
        total += (ahead + behind) / (2 * length**2)
    values, vectors = np.linalg.eigh((curvature + curvature.swapaxes(1, 2)) / 2)
    values = np.clip(values, 1 / _MOST_CHANGE, _MOST_CHANGE)
    # S = L V diag(1 / values) V' L'
    root = axes @ (vectors / np.sqrt(values)[:, None])
    standard = (root.swapaxes(1, 2) @ total[..., None])[..., 0]
    norm = np.sqrt(np.square(standard).sum(axis=1, keepdims=True))
    standard *= np.minimum(1.0, _LONGEST_SHIFT / np.maximum(norm, _LONGEST_SHIFT))
    return latents + (root @ standard[..., None])[..., 0], root @ root.swapaxes(1, 2)
