"""Expectation propagation for Gaussian processes with labels -1 and 1 (probit likelihood).

The posterior of the latent function f at the training points, p(f | y) ~ N(f; 0, K) prod_i
Phi(y_i f_i), is approximated by a Gaussian in which each factor Phi(y_i f_i) is replaced by a
"site", exp(nu_i f_i - tau_i f_i^2 / 2) up to a constant. Each site in turn is chosen so that the
Gaussian has the mean and variance that the exact factor would give it, until nothing changes.

After Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): Algorithm 3.5
finds the sites, Algorithm 3.6 predicts, and Section 5.5.2 differentiates the marginal likelihood.
All in float64, in forms that bear sites and variances of zero.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dger
from scipy.special import erfcx, log_ndtr
from sklearn.exceptions import ConvergenceWarning

from anamorph.arrays.typing import Float64Array

Number = TypeVar("Number", float, Float64Array)

MOST_SWEEPS = 200
TOLERANCE = 1e-7


@dataclass(frozen=True)
class Sites:
    """Gaussian stand-ins for the likelihood of each of N labels.

    Attributes
    ----------
    precision : (N,)
        tau.
    shift : (N,)
        nu, precision times mean.
    """

    precision: Float64Array
    shift: Float64Array

    @classmethod
    def flat(cls, n_points: int) -> Sites:
        """Return sites that say nothing, to start from."""
        return cls(np.zeros(n_points), np.zeros(n_points))

    def differ_from(self, other: Sites) -> bool:
        """Tell whether any site is elsewhere, beyond the tolerance."""
        moved = np.abs(self.precision - other.precision).max(initial=0)
        pushed = (np.abs(self.shift - other.shift) / (1 + np.abs(self.shift))).max(initial=0)
        return bool(max(moved, pushed) > TOLERANCE)


@dataclass(frozen=True)
class Posterior:
    """Gaussian approximation of the latent function given labels.

    Attributes
    ----------
    sites : Sites
    coefficients : (N,)
        b = (K + S^-1)^-1 S^-1 nu, with S = diag(tau): the mean at x is k(x)'b.
    whitener : (N, N)
        V = L^-1 S^1/2, with LL' = I + S^1/2 K S^1/2: the variance at x is k(x, x) - |V k(x)|^2.
    log_marginal_likelihood : float
        ln p(y), approximately.
    """

    sites: Sites
    coefficients: Float64Array
    whitener: Float64Array
    log_marginal_likelihood: float

    def predict(
        self, covariances: Float64Array, variances: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return mean and variance of the latent function at M points (Algorithm 3.6).

        Parameters
        ----------
        covariances : (M, N)
            Prior covariances with the training points.
        variances : (M,)
            Prior variances.
        """
        mean = covariances @ self.coefficients
        explained = np.square(self.whitener @ covariances.T).sum(axis=0)
        return mean, np.maximum(variances - explained, 0)

    def gradient(self, derivatives: Iterable[Float64Array]) -> Float64Array:
        """Return the derivatives of ln p(y), given those of the covariance (N, N).

        The sites do not count: at convergence ln p(y) is stationary with respect to them.
        """
        inverse = self.whitener.T @ self.whitener
        slope = np.outer(self.coefficients, self.coefficients) - inverse
        return np.array([0.5 * np.sum(slope * derivative) for derivative in derivatives])


def infer(covariance: Float64Array, signs: Float64Array, start: Sites | None = None) -> Posterior:
    """Find the posterior of the latent function (Algorithm 3.5).

    Parameters
    ----------
    covariance : (N, N)
        K, the prior covariance of the latent function at the training points.
    signs : (N,)
        Labels y, -1 or 1.
    start : Sites, optional
        Where to start, e.g. the sites of a similar covariance; the end is the same.
    """
    sites = Sites.flat(len(signs)) if start is None else start
    for _ in range(MOST_SWEEPS):
        before = sites
        sites = _sweep(covariance, signs, sites)
        if not sites.differ_from(before):
            break
    else:
        warnings.warn(
            f"expectation propagation has not converged in {MOST_SWEEPS} sweeps: probabilities "
            "may be off; scale the features, e.g. by a StandardScaler",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _posterior(covariance, signs, sites)


def _sweep(covariance: Float64Array, signs: Float64Array, sites: Sites) -> Sites:
    """Update every site once, one after the other."""
    precision, shift = sites.precision.copy(), sites.shift.copy()
    # Computed anew for every sweep, so that rounding in the rank-one updates does not add up.
    whitened = _whitener(_factor(covariance, precision), precision) @ covariance
    sigma = np.asfortranarray(covariance - whitened.T @ whitened)
    mean = sigma @ shift
    for i, sign in enumerate(signs):
        column = sigma[:, i].copy()
        cavity = _cavity(mean[i], column[i], precision[i], shift[i])
        new_precision, new_shift = _matched_site(sign, *cavity)
        # Rank-one updates of Sigma = (K^-1 + S)^-1 and of mu = Sigma nu
        gain = new_precision - precision[i]
        shrink = 1 + gain * column[i]
        mean += column * ((new_shift - shift[i]) - gain * mean[i]) / shrink
        sigma = dger(-gain / shrink, column, column, a=sigma, overwrite_a=1)
        precision[i], shift[i] = new_precision, new_shift
    return Sites(precision, shift)


def _cavity(
    mean: Number, variance: Number, precision: Number, shift: Number
) -> tuple[Number, Number]:
    """Return mean and variance of marginals from which their sites are taken away."""
    remaining = 1 - precision * variance
    return (mean - shift * variance) / remaining, variance / remaining


def _matched_site(sign: float, mean: float, variance: float) -> tuple[float, float]:
    """Return tau and nu of the site that matches the moments of Phi(y f) N(f; mean, variance).

    With c = r (z + r), r = N(z) / Phi(z): tau = c / (1 + variance (1 - c)), where no term is a
    difference of large numbers.
    """
    scale = math.sqrt(1 + variance)
    z = sign * mean / scale
    ratio = _density_ratio(z)
    curvature = min(max(ratio * (z + ratio), 0.0), 1.0)  # it is, but for rounding
    widened = 1 + variance * (1 - curvature)
    return curvature / widened, (sign * ratio * scale + mean * curvature) / widened


def _density_ratio(z: float) -> float:
    """Return N(z) / Phi(z), which is about -z for very negative z, without underflow."""
    return math.sqrt(2 / math.pi) / float(erfcx(-z / math.sqrt(2)))


def _factor(covariance: Float64Array, precision: Float64Array) -> Float64Array:
    """Return the lower triangular L with LL' = I + S^1/2 K S^1/2, (N, N)."""
    root = np.sqrt(precision)
    return np.asarray(cholesky(np.eye(len(root)) + root[:, None] * covariance * root, lower=True))


def _whitener(factor: Float64Array, precision: Float64Array) -> Float64Array:
    """Return V = L^-1 S^1/2, (N, N)."""
    return np.asarray(solve_triangular(factor, np.diag(np.sqrt(precision)), lower=True))


def _posterior(covariance: Float64Array, signs: Float64Array, sites: Sites) -> Posterior:
    factor = _factor(covariance, sites.precision)
    whitener = _whitener(factor, sites.precision)
    whitened = whitener @ covariance
    variance = np.diagonal(covariance) - np.square(whitened).sum(axis=0)
    coefficients = sites.shift - whitener.T @ (whitened @ sites.shift)
    terms = _log_normalisers(signs, sites, covariance @ coefficients, variance)
    return Posterior(
        sites,
        coefficients,
        whitener,
        float(terms.sum() - np.log(np.diagonal(factor)).sum()),
    )


def _log_normalisers(
    signs: Float64Array, sites: Sites, mean: Float64Array, variance: Float64Array
) -> Float64Array:
    """Return what each point adds to ln p(y) beside -ln|L| (Equations 3.65, 3.73 and 3.74).

    Parameters
    ----------
    signs : (N,)
    sites : Sites
    mean, variance : (N,)
        Of the posterior.
    """
    tau, nu = sites.precision, sites.shift
    cavity_mean, cavity_variance = _cavity(mean, variance, tau, nu)
    widened = 1 + tau * cavity_variance
    log_probability = log_ndtr(signs * cavity_mean / np.sqrt(1 + cavity_variance))
    pull = cavity_mean * (tau * cavity_mean - 2 * nu) - cavity_variance * nu**2
    return np.asarray(log_probability + 0.5 * (np.log(widened) + nu * mean + pull / widened))
