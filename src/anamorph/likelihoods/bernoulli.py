"""Binary images: J = -(f a' + ln s(-a')) with the logistic function s(a') = 1 / (1 + exp(-a')).

The derivatives are g = s - f and H = s (1 - s). Images may be soft, with values from 0 to 1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anamorph.arrays.typing import Array, Float32Array
from anamorph.kernels.compile import formula
from anamorph.kernels.formulas.elementary import exp_of_nonpositive, log1p_of_fraction
from anamorph.likelihoods.base import IndependentChannels

_ZERO, _ONE = np.float32(0), np.float32(1)
_MOST = np.float32(40)  # |a'| beyond which a voxel is as certain as it gets
_LOADING = np.float32(1e-8)
_START_LOADING = 1e-3
_LEAST_SHARE = np.float32(1e-7)  # that float32 tells from 1


class Bernoulli(IndependentChannels):
    """Binary images, or probabilities of being foreground."""

    name = "bernoulli"
    brief = "binary"
    description = "binary images, or probabilities"
    default_penalties: ClassVar = {
        "shape": (0.0002, 0.002, 0.2, 0.02, 0.02),
        "appearance": (0.0002, 0.02, 0.0),
        "mean": (1e-6, 1e-4, 1e-4),
    }
    shape_loading = 1e-4
    least_curvature = 1e-2
    value_range = (0.0, 1.0)
    range_words = "values from 0 to 1"
    range_advice = "rescale them, or fit with likelihood='gaussian'"

    @staticmethod
    @formula
    def voxel(a: float, f: float, weight: float) -> tuple[float, float, float]:
        """Return ln p(f | a'), g and H, all from one exponential of -|a'|."""
        certain = min(max(np.float32(a), -_MOST), _MOST)
        t = exp_of_nonpositive(-abs(certain))
        r = _ONE / (_ONE + t)
        s = r if certain >= _ZERO else t * r
        normaliser = max(certain, _ZERO) + log1p_of_fraction(t)  # -ln s(-a')
        return f * certain - normaliser, s - f, t * r * r + _LOADING

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        certain = np.clip(appearance, -_MOST, _MOST)
        return 1 / (1 + np.exp(-certain))

    def link(self, expected: Array) -> Array:  # noqa: D102
        certain = np.clip(expected, _LEAST_SHARE, 1 - _LEAST_SHARE)
        return np.log(certain / (1 - certain))

    def variance(self, expected: Array, spread: Array, noise_variance: Array) -> Array:  # noqa: D102
        return expected * (1 - expected)  # of which the spread is a part

    def draw(  # noqa: D102
        self, expected: Array, noise_variance: Array, generator: np.random.Generator
    ) -> Float32Array:
        return (generator.random(expected.shape) < expected).astype(np.float32)

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        s = self.expectation(mean)
        return count * s - total, count * (s * (1 - s) + _START_LOADING)
