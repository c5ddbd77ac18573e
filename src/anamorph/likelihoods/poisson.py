"""Counts: J = exp(a') - f a' + ln f!, with the rate exp(a') of each voxel.

The derivatives are g = exp(a') - f and H = exp(a'), or f / 8 where that is more. Counts may be
soft: any value of 0 or more. Each channel may be missing on its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anamorph.arrays.typing import Array, Float32Array
from anamorph.kernels.compile import formula
from anamorph.likelihoods.base import IndependentChannels

_MOST = np.float32(20)  # |a'| beyond which rates do not change
_LOADING = np.float32(1e-6)
# H is at least this share of f: a Gauss-Newton step from a rate far below f would overshoot by far,
# and so moves a' by 8 at most. It matters only where f is more than 8 times its rate.
_LEAST_SHARE = np.float32(1 / 8)
_START_LOADING = 1e-3
_BIAS, _MANTISSA = np.int32(127), np.int32(23)  # of float32
_LN2, _SQRT2 = np.log(2.0), np.sqrt(2.0)
_HALF_LN_2PI = np.log(2 * np.pi) / 2


# Where counts are large, terms of thousands cancel in ln p(f | a'), and a fit judges its steps by
# what is left: that takes float64. Series, since calls of a library would keep loops scalar.


@formula
def _power_of_two(n: int) -> float:
    """Return 2^n, |n| <= 126, from the bits of a float32."""
    return np.float64(np.int32((np.int32(n) + _BIAS) << _MANTISSA).view(np.float32))


@formula
def _exp(x: float) -> float:
    """Return exp(x) to 1e-11, |x| <= 20: exp(x) = 2^n exp(r) with |r| <= ln(2) / 2, by series."""
    n = np.int32(x / _LN2 + (0.5 if x > 0 else -0.5))
    r = x - np.float64(n) * _LN2
    series = ((r / 9 + 1) * r / 8 + 1) * r / 7 + 1
    series = ((series * r / 6 + 1) * r / 5 + 1) * r / 4 + 1
    series = ((series * r / 3 + 1) * r / 2 + 1) * r + 1
    return series * _power_of_two(n)


@formula
def _log(y: float) -> float:
    """Return ln(y) to 2e-10, 1 <= y < 1e38: y = 2^n m, ln m = ln(2)/2 + 2 artanh(s), by series."""
    n = (np.int32(np.float32(y).view(np.int32)) >> _MANTISSA) - _BIAS
    m = y * _power_of_two(-n)
    s = (m - _SQRT2) / (m + _SQRT2)  # |s| < 0.172
    q = s * s
    series = ((((q / 11 + 1 / 9) * q + 1 / 7) * q + 1 / 5) * q + 1 / 3) * q + 1
    return (np.float64(n) + 0.5) * _LN2 + 2 * s * series


@formula
def log_factorial(f: float) -> float:
    """Return ln f! = ln Gamma(f + 1), f >= 0: Stirling's series at y = f + 4, good to 1e-8."""
    k = np.float64(f)
    y = k + 4
    r = 1 / y
    q = r * r
    series = (((-q / 1680 + 1 / 1260) * q - 1 / 360) * q + 1 / 12) * r
    gamma = (y - 0.5) * _log(y) - y + _HALF_LN_2PI + series
    return gamma - _log((k + 1) * (k + 2) * (k + 3))


class Poisson(IndependentChannels):
    """Images of counts, as of photons."""

    name = "poisson"
    brief = "counts"
    description = "counts, such as those of photons"
    # A voxel tells as much as its rate: these suit rates of about 1 to 20, and those of hundreds
    # want as many times larger weights.
    default_penalties: ClassVar = {
        "shape": (0.001, 0.01, 1.0, 0.1, 0.1),
        "appearance": (0.001, 0.1, 0.0),
        "mean": (1e-6, 1e-4, 1e-4),
    }
    shape_loading = 1e-4
    least_curvature = 1e-2
    value_range = (0.0, np.inf)
    range_words = "values of 0 or more (and up to 4.8e8: divide larger ones by a number)"
    range_advice = "set negative ones to 0 or NaN, or fit with likelihood='gaussian'"
    scales_integers = False
    accepts_constant = True

    def accepts(
        self, lowest: float | np.floating, highest: float | np.floating, slack: float = 0.0
    ) -> bool:
        """Tell whether there are rates for all counts; infinity stands for no limit, as in range.

        Images that contain infinity are refused before.
        """
        has_no_rate = np.exp(_MOST) < highest < np.inf
        return super().accepts(lowest, highest, slack) and not has_no_rate

    @staticmethod
    @formula
    def voxel(a: float, f: float, weight: float) -> tuple[float, float, float]:
        """Return ln p(f | a'), g and H."""
        clipped = np.float64(min(max(np.float32(a), -_MOST), _MOST))
        exact = _exp(clipped)
        rate = np.float32(exact)
        curvature = max(rate, _LEAST_SHARE * np.float32(f)) + _LOADING
        return f * clipped - exact - log_factorial(f), rate - f, curvature

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        return np.exp(np.clip(appearance, -_MOST, _MOST))

    def link(self, expected: Array) -> Array:  # noqa: D102
        return np.log(np.maximum(expected, np.exp(-_MOST)))

    def regressors(self, images: Array) -> Array:
        """Return ln(f + 1/2): counts of a model's own images differ by orders of magnitude."""
        return np.log(images + np.float32(0.5))

    def variance(self, expected: Array, spread: Array, noise_variance: Array) -> Array:  # noqa: D102
        return expected + spread

    def draw(  # noqa: D102
        self, expected: Array, noise_variance: Array, generator: np.random.Generator
    ) -> Float32Array:
        return generator.poisson(expected).astype(np.float32)

    def starting_mean(self, count: Array, total: Array) -> Array:
        """Return the log of the mean counts, as if one image more had the rate of its channel.

        Gauss-Newton from 0 would overshoot: from a rate of 1 to one of f, its step is f - 1
        instead of ln f.
        """
        space = tuple(range(1, total.ndim))
        counted = np.maximum(count.sum(axis=space, keepdims=True), 1)
        rate = np.maximum(total.sum(axis=space, keepdims=True) / counted, 1e-6)
        return np.log((total + rate) / (count + 1))

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        rate = self.expectation(mean)
        return count * rate - total, count * (rate + _START_LOADING)
