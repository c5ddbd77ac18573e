"""The axes of the latent space: Algorithm 8 of the paper.

Latents T z with bases W T^-1 give the same images as latents z with bases W. T makes the new ZZ'
and C diagonal. Its scales Q balance the penalty on the bases against the prior on the latents,
with the precision A re-estimated as they change.

Differences from the printed algorithm: the penalty on the bases is N C, not C. With separate
latents T is block diagonal, while A, and so the scaling, couples the blocks. The paper scales by
ZZ' alone. Where the uncertainty S outweighs ZZ', as for dead modes, this can lower the Wishart
part of the objective; scales from ZZ' + S are then tried for those modes. (Using ZZ' + S for all
modes would raise the Wishart part further, but gives models with a lower evidence, both for the
images they were fitted to and for others.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from anamorph.latents.matrices import Matrix, Vector, symmetric_matrix
from anamorph.latents.wishart import (
    WishartPosterior,
    check_prior_dof,
    expected_precision,
    wishart_part,
)

# Dead modes make ZZ' and C singular. Eigenvalues are raised to this share of the largest, which
# bounds the condition of T: it grows with the fourth root of the conditions of ZZ' and C.
EIGENVALUE_FLOOR = 1e-8
# Bases are float32: a transform with a larger condition would spoil the images.
LARGEST_CONDITION = 1e6
# Rounding error relative to the Wishart part: permuting the latents must not count as worse.
ROUNDING = 1e-10
NEWTON_STEPS = 100
# Both relative to the scales: when to stop, and how much of a scale one step may take away.
NEWTON_TOLERANCE = 1e-11
LARGEST_SHRINKAGE = 0.9


def orthogonalising_transform(
    basis_energy: ArrayLike,
    latent_scatter: ArrayLike,
    covariance_sum: ArrayLike,
    n_images: int,
    prior_dof: float,
    blocks: Sequence[int] | None = None,
    n_rounds: int = 100,
) -> Matrix:
    """Return T, which makes ZZ' and C diagonal and balances their scales (Algorithm 8).

    Latents become T z, bases W T^-1, and the matrices T ZZ' T', T S T' and T^-T C T^-1. Rows are
    ordered by how much they contribute to the images; the largest entry of each is positive.

    Parameters
    ----------
    basis_energy : array_like, (K, K)
        C = Wv'Lv Wv + Wa'La Wa.
    latent_scatter : array_like, (K, K)
        ZZ'.
    covariance_sum : array_like, (K, K)
        S, the sum over images of the covariance of z.
    n_images : int
        N.
    prior_dof : float
        nu0, see `check_prior_dof`.
    blocks : sequence of int, optional
        Sizes of the groups of latents that must not mix, (n_appearance, n_shape) for separate
        latents; by default one group of all latents.
    n_rounds : int
        How often to alternate between A given the scales and the scales given A; 100 by default.

    Returns
    -------
    ndarray, (K, K)
        T, which does not lower the Wishart part of the objective. The identity where no better
        transform was found, and where all bases or all latents are zero.
    """
    basis_energy = symmetric_matrix(basis_energy, "basis energy C")
    latent_scatter = symmetric_matrix(latent_scatter, "latent scatter ZZ'")
    covariance_sum = symmetric_matrix(covariance_sum, "covariance sum S")
    blocks = _checked_blocks(blocks, basis_energy, latent_scatter, covariance_sum)
    check_prior_dof(prior_dof, len(basis_energy))
    identity = np.eye(len(basis_energy))
    if np.trace(basis_energy) <= 0 or np.trace(latent_scatter) <= 0:
        return identity

    floored_energy = _floored(basis_energy)
    floored_scatter = _floored(latent_scatter)
    axes = _diagonalising_transform(floored_energy, floored_scatter, blocks)
    energy = n_images * np.diag(_transformed_energy(axes, floored_energy))
    certain_scatter = axes @ floored_scatter @ axes.T
    scatter = certain_scatter + axes @ covariance_sum @ axes.T

    def criterion(transform: Matrix) -> float:
        scatter = transform @ (latent_scatter + covariance_sum) @ transform.T
        posterior = WishartPosterior.from_scatter(scatter, n_images, prior_dof)
        energy = _transformed_energy(transform, basis_energy)
        return wishart_part(posterior, scatter, energy, n_images)

    before = criterion(identity)
    for balanced_scatter in (certain_scatter, _with_dead_modes(certain_scatter, scatter)):
        scales = _balancing_scales(energy, balanced_scatter, scatter, n_images, prior_dof, n_rounds)
        transform = _with_positive_peaks(scales[:, None] * axes)  # Q T
        is_no_worse = criterion(transform) >= before - ROUNDING * abs(before)
        if is_no_worse and np.linalg.cond(transform) < LARGEST_CONDITION:
            return transform
    return identity


def _with_dead_modes(certain_scatter: Matrix, scatter: Matrix) -> Matrix:
    """Return ZZ', with S added for modes whose variance is mostly uncertainty."""
    is_dead = np.diag(scatter) > 2 * np.diag(certain_scatter)
    return np.where(np.outer(is_dead, is_dead), scatter, certain_scatter)


def _checked_blocks(blocks: Sequence[int] | None, *matrices: Matrix) -> Sequence[int]:
    """Return the sizes of the blocks, after checking that all matrices are K x K."""
    sizes = [len(matrix) for matrix in matrices]
    if len(set(sizes)) > 1:
        raise ValueError(f"C, ZZ' and S must have the same size, got {sizes}")
    blocks = blocks or sizes[:1]
    if min(blocks) < 0 or sum(blocks) != sizes[0]:
        raise ValueError(f"blocks must add up to {sizes[0]} latents, got {tuple(blocks)}")
    return blocks


def _floored(matrix: Matrix) -> Matrix:
    """Return the matrix with its small eigenvalues raised."""
    values, vectors = np.linalg.eigh(matrix)
    floored_values = np.maximum(values, EIGENVALUE_FLOOR * values[-1])
    return np.asarray((vectors * floored_values) @ vectors.T, dtype=np.float64)


def _transformed_energy(transform: Matrix, basis_energy: Matrix) -> Matrix:
    """Return T^-T C T^-1."""
    transform_inverse = np.linalg.inv(transform)
    return transform_inverse.T @ basis_energy @ transform_inverse


def _diagonalising_transform(
    basis_energy: Matrix, latent_scatter: Matrix, blocks: Sequence[int]
) -> Matrix:
    """Return T before scaling: T = D V' (D^z)^-1/2 (V^z)', in every block.

    It makes C the identity and ZZ' the diagonal matrix D^2.
    """
    transform = np.zeros_like(basis_energy)
    for start, stop in pairwise(np.cumsum([0, *blocks])):
        block = (slice(start, stop), slice(start, stop))
        latent_values, latent_vectors = np.linalg.eigh(latent_scatter[block])  # D^z, V^z
        energy_values, energy_vectors = np.linalg.eigh(basis_energy[block])  # D^w, V^w
        latent_root = latent_vectors * np.sqrt(latent_values)
        energy_root = energy_vectors * np.sqrt(energy_values)
        # U D V' = (D^w)^1/2 (V^w)' V^z (D^z)^1/2
        _, singular_values, rotation = np.linalg.svd(energy_root.T @ latent_root)
        whitening = (latent_vectors / np.sqrt(latent_values)).T
        transform[block] = singular_values[:, None] * rotation @ whitening
    return transform


def _balancing_scales(
    energy: Vector,
    balanced_scatter: Matrix,
    scatter: Matrix,
    n_images: int,
    prior_dof: float,
    n_rounds: int,
) -> Vector:
    """Return the diagonal of Q = diag(exp q), alternating between A given Q and Q given A.

    Parameters
    ----------
    energy : ndarray, (K,)
        N diag(T^-T C T^-1).
    balanced_scatter : ndarray, (K, K)
        T ZZ' T' (or T (ZZ' + S) T'), which the scales balance against the energy.
    scatter : ndarray, (K, K)
        T (ZZ' + S) T', which gives A.
    """
    scales = np.ones_like(energy)
    for _ in range(n_rounds):
        precision = expected_precision(scales[:, None] * scatter * scales, n_images, prior_dof)
        scales = _newton(energy, precision * balanced_scatter, scales)
        if scales.max() > LARGEST_CONDITION * scales.min():
            break  # Blocks coupled by a large S can drive the scales of ZZ' alone to infinity.
    return scales


def _newton(energy: Vector, coupling: Matrix, scales: Vector) -> Vector:
    """Return the x > 0 that minimises sum_k energy_k / x_k^2 + x' coupling x.

    The steps are in x = exp q, where this is convex (the coupling is positive definite, as a
    Hadamard product of such), and not in q, where it is not.
    """
    for _ in range(NEWTON_STEPS):
        gradient = 2.0 * (coupling @ scales - energy / scales**3)
        hessian = 2.0 * coupling + np.diag(6.0 * energy / scales**4)
        step = np.linalg.solve(hessian, gradient)
        step /= max(1.0, np.max(step / scales) / LARGEST_SHRINKAGE)
        is_converged = np.all(np.abs(step) < NEWTON_TOLERANCE * scales)
        scales = scales - step
        if is_converged:
            break
    return scales


def _with_positive_peaks(transform: Matrix) -> Matrix:
    """Return the transform with the largest entry of each row made positive."""
    peaks = np.take_along_axis(transform, np.abs(transform).argmax(axis=1)[:, None], axis=1)
    return np.asarray(transform * np.sign(peaks))
