"""The precision A of the latent variables: its variational posterior q(A) = W(A | Lambda, nu).

The paper's section "Expectation of the precision matrix". Latents are drawn from N(0, A^-1), and A
from the Wishart prior W(Lambda0, nu0) with Lambda0 = I / nu0. Given the scatter M = ZZ' + S of the
latents of N images, where S is the sum of their covariances,

    Lambda = (M + Lambda0^-1)^-1 = (nu0 I + M)^-1,  nu = N + nu0,  E[A] = nu Lambda.

``prior_dof=0`` means maximum likelihood, a point estimate: A = N (1e-5 max diag(M) I + M)^-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, multigammaln

from anamorph.latents.matrices import Matrix, inverse, log_determinant, symmetric_matrix

MAXIMUM_LIKELIHOOD_LOADING = 1e-5


def check_prior_dof(prior_dof: float, n_components: int) -> None:
    """Raise unless nu0 gives a prior that can be normalised, or is 0 for maximum likelihood.

    Parameters
    ----------
    prior_dof : float
        nu0: 0, or greater than n_components - 1.
    n_components : int
        K, the number of latent variables.

    Raises
    ------
    ValueError
        If 0 < nu0 <= K - 1 (an improper prior), nu0 < 0, or nu0 is not finite.
    """
    if prior_dof != 0 and not n_components - 1 < prior_dof < np.inf:
        raise ValueError(
            f"prior_dof must be 0 (maximum likelihood) or a finite number greater than "
            f"n_components - 1 = {n_components - 1}, got {prior_dof}"
        )


@dataclass(frozen=True)
class WishartPosterior:
    """The posterior q(A) = W(A | Lambda, nu), under the prior W(A | I / nu0, nu0).

    Attributes
    ----------
    scale : ndarray, (K, K)
        Lambda.
    dof : float
        nu.
    prior_dof : float
        nu0. If 0, q is the point E[A]: there is no prior, and ln|A| replaces E ln|A|.
    """

    scale: Matrix
    dof: float
    prior_dof: float

    @classmethod
    def from_scatter(cls, scatter: ArrayLike, n_images: int, prior_dof: float) -> WishartPosterior:
        """Return the posterior given the latents of n_images images.

        Parameters
        ----------
        scatter : array_like, (K, K)
            M = ZZ' + S.
        n_images : int
            N.
        prior_dof : float
            nu0, see `check_prior_dof`.

        Returns
        -------
        WishartPosterior
        """
        scatter = symmetric_matrix(scatter, "scatter of the latents")
        check_prior_dof(prior_dof, len(scatter))
        if n_images < 1:
            raise ValueError(f"n_images must be an integer >= 1, got {n_images}")
        loading = prior_dof or MAXIMUM_LIKELIHOOD_LOADING * np.diag(scatter).max()
        scale = inverse(loading * np.eye(len(scatter)) + scatter, "loaded scatter of the latents")
        return cls(scale, n_images + prior_dof, prior_dof)

    @property
    def expected_precision(self) -> Matrix:
        """E[A] = nu Lambda, of shape (K, K)."""
        return self.dof * self.scale

    @property
    def expected_log_determinant(self) -> float:
        """E ln|A|; ln|A| for maximum likelihood."""
        if self.prior_dof == 0:
            return log_determinant(self.expected_precision, "A")
        n_components = len(self.scale)
        digammas = digamma(0.5 * (self.dof - np.arange(n_components)))
        return float(np.sum(digammas + np.log(2.0))) + log_determinant(self.scale, "Lambda")

    @property
    def negative_entropy(self) -> float:
        """E ln q(A), where the prior is proper."""
        # Tr(Lambda^-1 E[A]) = nu K
        trace = self.dof * len(self.scale)
        return self._expected_log_density(self.dof, log_determinant(self.scale, "Lambda"), trace)

    @property
    def expected_log_prior(self) -> float:
        """E ln p(A) under q, where the prior is proper."""
        # Lambda0 = I / nu0
        log_determinant_of_scale = -len(self.scale) * np.log(self.prior_dof)
        trace = self.prior_dof * float(np.trace(self.expected_precision))
        return self._expected_log_density(self.prior_dof, log_determinant_of_scale, trace)

    @property
    def divergence(self) -> float:
        """KL(q(A) | p(A)), in nats; 0 for maximum likelihood."""
        if self.prior_dof == 0:
            return 0.0
        return self.negative_entropy - self.expected_log_prior

    def _expected_log_density(
        self, dof: float, log_determinant_of_scale: float, trace: float
    ) -> float:
        """Return E ln W(A | scale, dof) under q, given Tr(scale^-1 E[A])."""
        n_components = len(self.scale)
        log_normaliser = 0.5 * dof * (
            n_components * np.log(2.0) + log_determinant_of_scale
        ) + multigammaln(0.5 * dof, n_components)
        log_kernel = 0.5 * (dof - n_components - 1) * self.expected_log_determinant - 0.5 * trace
        return float(log_kernel - log_normaliser)


def expected_precision(scatter: ArrayLike, n_images: int, prior_dof: float) -> Matrix:
    """Return E[A] = (N + nu0) (nu0 I + M)^-1, the precision of the latents.

    Parameters
    ----------
    scatter : array_like, (K, K)
        M = ZZ' + S.
    n_images : int
        N.
    prior_dof : float
        nu0, see `check_prior_dof`. If 0, the first term is 1e-5 max diag(M) I.

    Returns
    -------
    ndarray, (K, K)
    """
    return WishartPosterior.from_scatter(scatter, n_images, prior_dof).expected_precision


def wishart_part(
    posterior: WishartPosterior, scatter: ArrayLike, basis_energy: ArrayLike, n_images: int
) -> float:
    """Return the terms of the objective that depend on A and on the transform T, in nats.

    (N/2) E ln|A| - Tr(E[A] M)/2 - KL(q(A) | p(A)) - N Tr(C)/2. The posterior given the same
    scatter maximises it; with maximum likelihood, up to the small term added to M.

    Parameters
    ----------
    posterior : WishartPosterior
        q(A).
    scatter : array_like, (K, K)
        M = ZZ' + S.
    basis_energy : array_like, (K, K)
        C.
    n_images : int
        N.

    Returns
    -------
    float
    """
    scatter = symmetric_matrix(scatter, "scatter of the latents")
    basis_energy = symmetric_matrix(basis_energy, "basis energy C")
    log_prior_of_latents = 0.5 * (
        n_images * posterior.expected_log_determinant
        - np.sum(posterior.expected_precision * scatter)
    )
    log_prior_of_bases = -0.5 * n_images * np.trace(basis_energy)
    return float(log_prior_of_latents + log_prior_of_bases) - posterior.divergence
