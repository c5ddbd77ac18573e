"""Labelled images, C classes: J = -sum_c f_c a'_c + ln sum_c exp a'_c, s = softmax(a').

The derivatives are g = s - f and the C x C matrix H = diag(s) - s s'. Images may be soft:
probabilities that sum to 1. A voxel is missing as a whole.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from anamorph.arrays.devices import array_namespace, kernels_for
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.kernels.compile import formula
from anamorph.kernels.formulas.elementary import exp_of_nonpositive
from anamorph.likelihoods.base import LOOPS, Derivatives, Likelihood, flat

_ONE = np.float32(1)
_LOADING = 1e-4  # times C^2, on the diagonal
_START_LOADING = 1e-3
_LEAST_SHARE = np.float32(1e-20)  # of a class


class Categorical(Likelihood):
    """Label maps as one channel per class, or probabilities of the classes."""

    name = "categorical"
    brief = "labels"
    description = "label or tissue maps, as probabilities of classes"
    default_penalties: ClassVar = {
        "shape": (0.0002, 0.002, 0.2, 0.02, 0.02),
        "appearance": (0.0002, 0.02, 0.0),
        "mean": (1e-6, 1e-4, 1e-4),
    }
    least_curvature = 1e-2
    holds_classes = True
    value_range = (0.0, 1.0)
    range_words = "values from 0 to 1"
    range_advice = "rescale them, or fit with likelihood='gaussian'"

    def n_hessian(self, n_channels: int) -> int:  # noqa: D102
        return n_channels * (n_channels + 1) // 2

    def log_likelihood(  # noqa: D102
        self, appearance: Array, images: Array, precision: Array
    ) -> Float64Array:
        return self._evaluate(appearance, images)

    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:  # noqa: D102
        n_images, n_channels, *space = images.shape
        xp, dtype = array_namespace(images), appearance.dtype
        gradient = xp.empty_like(appearance)
        hessian = xp.empty((n_images, self.n_hessian(n_channels), *space), dtype)
        values = self._evaluate(appearance, images, flat(gradient), flat(hessian))
        return Derivatives(values, gradient, hessian)

    def _evaluate(
        self,
        appearance: Array,
        images: Array,
        gradient: Array | None = None,
        hessian: Array | None = None,
    ) -> Float64Array:
        """Return ln p(f | a') per image, and fill in derivatives where there is room for them."""
        values: Float64Array = array_namespace(images).empty(len(images))
        loading = appearance.dtype.type(_LOADING * images.shape[1] ** 2)
        loop = kernels_for(images, LOOPS).class_loop(**_FORMULAS)
        loop(flat(appearance), flat(images), loading, values, gradient, hessian)
        return values

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        odds = np.exp(appearance - appearance.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def link(self, expected: Array) -> Array:  # noqa: D102
        return np.log(np.maximum(expected, _LEAST_SHARE))

    def variance(self, expected: Array, spread: Array, noise_variance: Array) -> Array:  # noqa: D102
        return expected * (1 - expected)  # of which the spread is a part

    def draw(  # noqa: D102
        self, expected: Array, noise_variance: Array, generator: np.random.Generator
    ) -> Float32Array:
        n_images, n_classes, *space = expected.shape
        below = np.cumsum(expected, axis=1) < generator.random((n_images, 1, *space))
        labels = np.minimum(below.sum(axis=1, keepdims=True), n_classes - 1)
        classes = np.arange(n_classes).reshape(-1, *(1,) * len(space))
        return np.asarray(labels == classes, np.float32)

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        s = self.expectation(mean[None])[0]
        n_channels = len(s)
        diagonal = [s[c] * (1 - s[c]) + _START_LOADING * n_channels**2 for c in range(n_channels)]
        above = [-s[b] * s[c] for b in range(n_channels) for c in range(b + 1, n_channels)]
        return count * s - total, count[:1] * np.stack(diagonal + above)

    def remove_redundancy(self, appearance: Array) -> Array:
        """Return an appearance (K, C, *space) whose classes have mean zero.

        Adding a constant to all classes changes no probability.
        """
        return appearance - appearance.mean(axis=1, keepdims=True)


# ---- formulas of a voxel, with a* = max_c a'_c; its classes are the business of the loops


@formula
def _odds(a: float, most: float) -> float:
    """Return exp(a'_c - a*)."""
    return exp_of_nonpositive(a - most)


@formula
def _log_total(total: float) -> float:
    """Return ln sum_c exp(a'_c - a*), given the sum."""
    return math.log(total)


@formula
def _log_odds(a: float, f: float, most: float) -> float:
    """Return what class c adds to ln p(f | a')."""
    return f * (a - most)


@formula
def _slope(s: float, f: float) -> float:
    return s - f


@formula
def _variance(s: float) -> float:
    return s * (_ONE - s)


@formula
def _covariance(s: float, other: float) -> float:
    return -s * other


_FORMULAS = {
    "odds_of": _odds,
    "log_total": _log_total,
    "log_odds": _log_odds,
    "slope_of": _slope,
    "variance_of": _variance,
    "covariance_of": _covariance,
}
