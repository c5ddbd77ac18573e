"""Gaussians that fit a posterior where its mass is, not only at its mode.

Laplace's approximation takes the curvature of U(z) = -ln p(f, z) at the mode. With K latents,
though, nearly all of the mass is about K^(1/2) standard deviations away from it, and there the
warps, and likelihoods other than that of Gaussian noise, bend U differently: ellipsoids are too
small. The Gaussian N(m, S) that is nearest to a posterior (in the sense of variational inference)
has

    E[dU/dz] = 0,   S^-1 = E[d^2U/dz^2],   expectations under N(m, S).

Both are found from exact gradients g at 2K points m +- K^(1/2) L q_k, where L L' = S and q_k are
the columns of a rotation (the points of an unscented transform): S^-1 is the average curvature
between each pair of points. A second round starts from the first.

It is still too narrow where a posterior is skewed. To second order in the third derivatives T of U,
in coordinates in which S is the identity, the covariance exceeds it by sum_bc T_ibc T_jbc / 2. The
second differences s_k = g(+) + g(-) - 2 g(0) of these points are T[u, u] for |u|^2 = K, and over
all directions u their products average to (2 sum_bc T_ibc T_jbc + t_i t_j) K / (K + 2), t being
the mean of s_k: that tells the excess without another gradient.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.generator import Generator

#: How often the Gaussian is fitted, each time by 2K exact gradients.
N_ROUNDS = 2

# Curvature may be so many times that of the round before, or one over it: more says that the points
# have left what one Gaussian can describe.
_MOST_CHANGE = 4.0
_LONGEST_SHIFT = 1.0  # of the mean in a round, in standard deviations


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
        pushed = generator.pushed(warped, displacement)
        gradient, _ = generator.latent_derivatives(appearance, pushed)
    else:
        everyone = array_namespace(latents).arange(len(latents))
        gradient = generator.exact_gradient(path, appearance, warped.gradient, everyone)
    value = warped.log_likelihood + generator.log_prior(latents)
    return value, -gradient - latents @ generator.prior_of(latents)


def fit_gaussian(
    generator: Generator, images: Array, latents: Float64Array, covariance: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return the mean (N, K) and the covariance (N, K, K) of posteriors.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents : (N, K)
        Modes of the posteriors.
    covariance : (N, K, K)
        By Laplace's approximation.
    """
    root = cast(Float64Array, np.linalg.cholesky(covariance))  # L, of S = L L'
    skewness = np.zeros_like(covariance)
    for n in range(N_ROUNDS):
        latents, root, skewness = _fit_once(generator, images, latents, root, _rotation(n, root))
    # 1 + excess, between the roots of S
    excess = beside(root, np.eye(root.shape[1])) + skewness
    return latents, root @ excess @ root.swapaxes(1, 2)


def _rotation(number: int, like: Float64Array) -> Float64Array:
    """Return a random rotation (K, K), always the same for a round."""
    size = like.shape[1]
    noise = np.random.default_rng(number).standard_normal((size, size))
    rotation: Float64Array = beside(like, np.linalg.qr(noise)[0])
    return rotation


def _fit_once(
    generator: Generator,
    images: Array,
    centre: Float64Array,
    root: Float64Array,
    rotation: Float64Array,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return a new mean and root of the covariance, and the excess of the covariance, (N, K, K).

    The excess is relative to the new root.
    """
    n_latents = centre.shape[1]
    axes = root @ rotation
    steps = np.sqrt(n_latents) * axes
    _, here = exact_derivatives(generator, images, centre)
    change, bend = np.empty_like(axes), np.empty_like(axes)  # a column for each axis
    total = np.zeros_like(centre)
    for k in range(n_latents):
        _, ahead = exact_derivatives(generator, images, centre + steps[:, :, k])
        _, behind = exact_derivatives(generator, images, centre - steps[:, :, k])
        change[:, :, k] = (behind - ahead) / (2 * np.sqrt(n_latents))
        bend[:, :, k] = ahead + behind - 2 * here
        total += (ahead + behind) / (2 * n_latents)  # E[-dU/dz]
    curvature = axes.swapaxes(1, 2) @ change  # about the identity
    values, vectors = np.linalg.eigh((curvature + curvature.swapaxes(1, 2)) / 2)
    values = np.clip(values, 1 / _MOST_CHANGE, _MOST_CHANGE)
    new_root = axes @ (vectors / np.sqrt(values)[:, None])
    shift = _shortened((new_root.swapaxes(1, 2) @ total[..., None])[..., 0])
    # Lengths of the axes by the new root: second differences are brought to |u|^2 = K.
    lengths = (np.square(vectors.swapaxes(1, 2)) * values[:, :, None]).sum(axis=1)
    second = (new_root.swapaxes(1, 2) @ bend) / lengths[:, None]
    mean = second.mean(axis=2)
    products = second @ second.swapaxes(1, 2) / n_latents
    excess = ((n_latents + 2) / n_latents * products - mean[:, :, None] * mean[:, None]) / 4
    return centre + (new_root @ shift[..., None])[..., 0], new_root, excess


def _shortened(steps: Float64Array) -> Float64Array:
    norms = np.sqrt(np.square(steps).sum(axis=1, keepdims=True))
    shortened: Float64Array = steps * (_LONGEST_SHIFT / np.maximum(norms, _LONGEST_SHIFT))
    return shortened
