"""The joint log-probability that no step may lower, and the objective that people see.

**Within an iteration** A is fixed, and every step leaves the joint log-probability F no lower:

    F = sum_n ln p(f_n | z_n) - Tr(ZZ' (lambda_1 A + lambda_2 C)) / 2
        - lambda_1 N Tr(C) / 2 - N mu' L_mu mu / 2

**Between iterations** the transform T of the latents and q(A) maximise lambda_1 times the Wishart
part (see `latents.wishart`).

**Shown to people** after the first iteration on a grid is an approximate evidence: F with q(A) in
place of A (the Wishart part in place of the terms of A), plus the Laplace terms -ln|H_n| / 2 of the
latents. The determinant of the prior of z is in the Wishart part already, as N E ln|A| / 2. For
lambda = (1, 0) this is the variational bound, up to a constant.

After every later iteration the value is the one before, plus what the iteration gained: by how much
its steps raised F, and T and q(A) the Wishart part. So it never falls, up to rounding. How S_n and
ln|H_n| change with the parameters is not counted, since no step raises or guards it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.typing import BoolArray, Float64Array
from anamorph.latents import WishartPosterior, wishart_part

_ROUNDING = 1e-8  # of squared latents, over their variance


@dataclass(frozen=True)
class LatentSums:
    """Sums over images that the objective needs to know of their latents.

    Attributes
    ----------
    n_images : int
        N.
    scatter : (K, K)
        ZZ'.
    covariance_sum : (K, K)
        S, the sum of S_n.
    log_determinant_sum : float
        Sum of ln|H_n|.
    """

    n_images: int
    scatter: Float64Array
    covariance_sum: Float64Array
    log_determinant_sum: float

    @property
    def is_alive(self) -> BoolArray:
        """Which latents differ between images by more than rounding, (K,) bool."""
        return np.asarray(np.diag(self.scatter) > _ROUNDING * np.diag(self.covariance_sum))

    def transformed(self, transform: Float64Array) -> LatentSums:
        """Return the sums for latents T z: H_n becomes T^-T H_n T^-1."""
        _, log_determinant = np.linalg.slogdet(transform)
        return LatentSums(
            self.n_images,
            transform @ self.scatter @ transform.T,
            transform @ self.covariance_sum @ transform.T,
            self.log_determinant_sum - 2 * self.n_images * float(log_determinant),
        )


def joint_log_probability(
    log_likelihood: float,
    scatter: Float64Array,
    latent_precision: Float64Array,
    basis_energy: Float64Array,
    mean_energy: float,
    n_images: int,
    balance: tuple[float, float],
) -> float:
    """Return F, which no step within an iteration may lower.

    Parameters
    ----------
    log_likelihood : float
        Sum of ln p(f_n | z_n).
    scatter, latent_precision, basis_energy : (K, K)
        ZZ', A and C.
    mean_energy : float
        mu' L_mu mu, per image.
    n_images : int
    balance : pair of float
        lambda_1, lambda_2.
    """
    weight_1, weight_2 = balance
    prior = weight_1 * latent_precision + weight_2 * basis_energy
    return float(
        log_likelihood
        - 0.5 * np.sum(scatter * prior)
        - 0.5 * weight_1 * n_images * np.trace(basis_energy)
        - 0.5 * n_images * mean_energy
    )


def approximate_evidence(
    log_likelihood: float,
    latents: LatentSums,
    basis_energy: Float64Array,
    mean_energy: float,
    balance: tuple[float, float],
    prior_dof: float,
) -> float:
    """Return what is shown to people after an iteration.

    Parameters
    ----------
    log_likelihood : float
        Sum of ln p(f_n | z_n).
    latents : LatentSums
    basis_energy : (K, K)
        C.
    mean_energy : float
        mu' L_mu mu, per image.
    balance : pair of float
        lambda_1, lambda_2.
    prior_dof : float
        nu_0.
    """
    weight_1, weight_2 = balance
    expected_scatter = latents.scatter + latents.covariance_sum
    posterior = WishartPosterior.from_scatter(expected_scatter, latents.n_images, prior_dof)
    wishart = wishart_part(posterior, expected_scatter, basis_energy, latents.n_images)
    return float(
        log_likelihood
        - 0.5 * weight_2 * np.sum(latents.scatter * basis_energy)
        - 0.5 * latents.n_images * mean_energy
        + weight_1 * wishart
        - 0.5 * latents.log_determinant_sum
    )


def gain_of_turn(
    before: LatentSums,
    latent_precision: Float64Array,
    basis_energy: Float64Array,
    after: LatentSums,
    turned_energy: Float64Array,
    prior_dof: float,
) -> float:
    """Return by how much a transform of the latents and a new q(A) raise the Wishart part.

    Parameters
    ----------
    before, after : LatentSums
        Before and after the transform.
    latent_precision, basis_energy : (K, K)
        A and C before.
    turned_energy : (K, K)
        C after.
    prior_dof : float
        nu_0.
    """
    n_images, dof = before.n_images, before.n_images + prior_dof
    scatters = [some.scatter + some.covariance_sum for some in (before, after)]
    old = WishartPosterior(latent_precision / dof, dof, prior_dof)
    new = WishartPosterior.from_scatter(scatters[1], n_images, prior_dof)
    return wishart_part(new, scatters[1], turned_energy, n_images) - wishart_part(
        old, scatters[0], basis_energy, n_images
    )
