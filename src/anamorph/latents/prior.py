"""The prior over the latent variables z, and the latents that a fit starts from.

Encoding, evidence and the first guesses of encoding use one prior, z ~ N(0, P^-1), with the
precision P = lambda1 A + lambda2 C of the joint log-probability. A fit starts from z ~ N(0, I), one
draw per image identity, centred and whitened over all images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve

from anamorph.latents.matrices import Matrix, Vector, cholesky, inverse, symmetric_matrix

# Share of their variance that starting latents must keep when they are centred and decorrelated.
SMALLEST_SHARE = 1e-8
_MOST_TO_CHOOSE_BY = 256  # examples, for the ridge of a regression


def prior_precision(
    latent_precision: ArrayLike, basis_energy: ArrayLike, balance: tuple[float, float]
) -> Matrix:
    """Return P = lambda1 A + lambda2 C, the precision of the prior over z.

    Parameters
    ----------
    latent_precision : array_like, (K, K)
        A.
    basis_energy : array_like, (K, K)
        C = Wv'Lv Wv + Wa'La Wa.
    balance : tuple of two floats
        lambda1, lambda2.

    Returns
    -------
    ndarray, (K, K)
    """
    precision_weight, energy_weight = balance
    latent_precision = symmetric_matrix(latent_precision, "latent precision A")
    basis_energy = symmetric_matrix(basis_energy, "basis energy C")
    return precision_weight * latent_precision + energy_weight * basis_energy


def mode_standard_deviations(latent_precision: ArrayLike) -> Vector:
    """Return the standard deviation of each latent variable under N(0, A^-1).

    Parameters
    ----------
    latent_precision : array_like, (K, K)
        A, positive definite.

    Returns
    -------
    ndarray, (K,)
        The square roots of diag(A^-1).
    """
    return np.asarray(np.sqrt(np.diag(inverse(latent_precision, "latent precision A"))))


def draw_latents(precision: ArrayLike, n_samples: int, generator: np.random.Generator) -> Matrix:
    """Draw z ~ N(0, P^-1).

    Parameters
    ----------
    precision : array_like, (K, K)
        P of `prior_precision`, or any other that is positive definite.
    n_samples : int
        Number of draws.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray, (n_samples, K)
    """
    factor = cholesky(precision, "precision of the latents")  # P = L L', so cov(L^-T e) = P^-1
    noise = generator.standard_normal((n_samples, len(factor)))
    return np.asarray(np.linalg.solve(factor.T, noise.T).T, dtype=np.float64)


def ridge_weights(gram: ArrayLike, latents: ArrayLike) -> Matrix:
    """Return the weights a, (M, K), with which sum_m a_m k(x, x_m) is about the latents of x.

    Parameters
    ----------
    gram : array_like, (M, M)
        k(x_m, x_n): products of examples with each other, or of functions of them.
    latents : array_like, (M, K)
        Those of the examples.
    """
    gram, latents = np.asarray(gram, np.float64), np.asarray(latents, np.float64)
    # The ridge is the variance of noise in units of the kernel: few examples tell it as well as
    # many, whose eigenvectors would cost far more than the solution does.
    few = slice(0, _MOST_TO_CHOOSE_BY)
    ridge = _best_ridge(gram[few, few], latents[few])
    if ridge is None:
        return np.zeros_like(latents)
    return np.asarray(solve(gram + ridge * np.eye(len(gram)), latents, assume_a="pos"))


def _best_ridge(gram: Matrix, latents: Matrix) -> float | None:
    """Return the ridge, of 33, that predicts each example best from all others; None if all are 0.

    Rounding makes variances of 1e-8 of the largest of kernels in float32: no ridge is so small.
    """
    variances, axes = np.linalg.eigh(gram)
    if not variances[-1] > 0:
        return None
    variances = np.maximum(variances, 0)
    turned = axes.T @ latents
    errors, ridges = [], variances[-1] * np.geomspace(1e-7, 1, 33)
    for ridge in ridges:
        kept = variances / (variances + ridge)
        residual = latents - axes @ (kept[:, None] * turned)
        errors.append(np.sum((residual / (1 - (axes**2) @ kept)[:, None]) ** 2))
    return float(ridges[int(np.argmin(errors))])


def starting_latents(seed: int, identities: Sequence[int | str], n_components: int) -> Matrix:
    """Draw z ~ N(0, I) for each image, from the seed and the identity of the image alone.

    An image starts from the same latents whichever site holds it, and no two images start alike.
    The first columns do not depend on `n_components`.

    Parameters
    ----------
    seed : int
        The same at all sites.
    identities : sequence of int or str
        One per image, all different; 1 and "1" are different.
    n_components : int
        K.

    Returns
    -------
    ndarray, (N, K)
    """
    keys = [_philox_key(seed, identity) for identity in identities]
    if len(set(keys)) < len(keys):
        raise ValueError("image identities must all be different, got some more than once")
    latents = np.empty((len(keys), n_components))
    for key, row in zip(keys, latents, strict=True):
        np.random.Generator(np.random.Philox(key=key)).standard_normal(out=row)
    return latents


def _philox_key(seed: int, identity: int | str) -> int:
    """Return 128 bits derived from a seed and an image identity."""
    if not isinstance(identity, int | np.integer | str):
        raise TypeError(
            f"image identities must be integers or strings, got {type(identity).__name__}"
        )
    kind = "name" if isinstance(identity, str) else "number"
    text = f"{seed} {kind} {identity}"
    digest = hashlib.blake2b(text.encode(), digest_size=16, person=b"anamorph latents")
    return int.from_bytes(digest.digest(), "little")


def whitening(
    scatter_sum: ArrayLike, latent_sum: ArrayLike, n_images: int
) -> tuple[Vector, Matrix]:
    """Return the mean m and the matrix U such that z = U (z0 - m) has mean 0 and ZZ' = N I.

    Of all such matrices, U rotates the standardised latents least. It needs only sums over
    images, which may be at different sites.

    Parameters
    ----------
    scatter_sum : array_like, (K, K)
        Sum over images of z0 z0'.
    latent_sum : array_like, (K,)
        Sum over images of z0.
    n_images : int
        N, at least K + 1.

    Returns
    -------
    mean : ndarray, (K,)
    transform : ndarray, (K, K)
        For rows of latents, ``(latents - mean) @ transform.T``.

    Raises
    ------
    ValueError
        If there are too few images, or the latents are linearly dependent.
    """
    scatter_sum = symmetric_matrix(scatter_sum, "scatter of the starting latents")
    n_components = len(scatter_sum)
    if n_components > n_images - 1:
        raise ValueError(
            f"n_components must be at most the number of images less one, "
            f"got {n_components} components for {n_images} images"
        )
    mean = _checked_sum(latent_sum, n_components) / n_images
    covariance = scatter_sum / n_images - np.outer(mean, mean)
    variances = np.diag(covariance)
    if np.any(variances <= SMALLEST_SHARE * np.diag(scatter_sum) / n_images):
        raise ValueError(
            "starting latents must vary over images by more than 1e-4 of their mean, "
            "got a column that is (nearly) constant"
        )
    deviations = np.sqrt(variances)
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    if values[0] <= SMALLEST_SHARE:
        raise ValueError(
            "starting latents must be linearly independent, got columns that are combinations "
            "of others"
        )
    return mean, (vectors / np.sqrt(values)) @ vectors.T / deviations


def _checked_sum(latent_sum: ArrayLike, n_components: int) -> Vector:
    """Return the sum of the latents in float64, after checking its shape and values."""
    latent_sum = np.asarray(latent_sum, dtype=np.float64)
    if latent_sum.shape != (n_components,):
        raise ValueError(f"latent_sum must have shape ({n_components},), got {latent_sum.shape}")
    if not np.isfinite(latent_sum).all():
        raise ValueError("sum of the starting latents must be finite, got NaN or infinity")
    return latent_sum
