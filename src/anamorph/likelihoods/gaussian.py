"""Gaussian noise, one variance per channel: J = (a' - f)^2 / (2 s2) + ln(2 pi s2) / 2.

The derivatives are g = (a' - f) / s2 and H = 1 / s2. Each channel may be missing on its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from anamorph.arrays.devices import beside
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.kernels.compile import formula
from anamorph.likelihoods.base import IndependentChannels

_HALF = np.float32(1 / 2)
# A channel without noise would have infinite precision. So its variance is at least what rounding
# does to its mean (a share of the mean square), and a share of the largest mean square or variance
# of all channels: none of that depends on units. Where all are 0, it is that of `_NO_VARIANCE`.
_ROUNDING, _LEAST_SHARE, _LEAST_VARIANCE, _NO_VARIANCE = 1e-12, 1e-16, 1e-30, 1e-12


class Gaussian(IndependentChannels):
    """Images with stationary Gaussian noise."""

    name = "gaussian"
    brief = "intensities"
    description = "intensities with Gaussian noise"
    # Brought to the units of the images by `model.scaled_penalties`. Appearance is to be smooth:
    # where it is free to have edges, it explains what is out of place before shape can, and the
    # mean shows everything twice.
    default_penalties: ClassVar = {
        "shape": (0.001, 0.0, 16.0, 1.0, 1.0),
        "appearance": (4.0, 512.0, 64.0),
        "mean": (1e-5, 1e-3, 1e-3),
    }
    has_noise = True

    @staticmethod
    @formula
    def voxel(a: float, f: float, weight: float) -> tuple[float, float, float]:
        """Return -(a' - f)^2 / 2, which is weighted when it is summed up, and g and H."""
        residual = a - f
        return -_HALF * (residual * residual), weight * residual, weight

    def _log_density(self, values: Float64Array, observed: Any, precision: Array) -> Float64Array:
        weight = beside(values, precision, np.float64)
        density: Float64Array = values * weight + observed * np.log(weight / (2 * np.pi)) / 2
        return density.sum(axis=-1)

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        return appearance

    def variance(self, expected: Array, spread: Array, noise_variance: Array) -> Array:  # noqa: D102
        return spread + noise_variance.reshape(-1, *(1,) * (expected.ndim - 2))

    def log_predictive(  # noqa: D102
        self, images: Array, expected: Array, spread: Array, precision: Array
    ) -> Float64Array:
        variance = self.variance(expected, spread, beside(images, 1 / precision, np.float64))
        density = np.square(images - expected) / variance + np.log(2 * np.pi * variance)
        total: Float64Array = -np.nansum(density, axis=tuple(range(1, images.ndim))) / 2
        return total

    def draw(  # noqa: D102
        self, expected: Array, noise_variance: Array, generator: np.random.Generator
    ) -> Float32Array:
        deviation = np.sqrt(noise_variance).reshape(-1, *(1,) * (expected.ndim - 2))
        noise = generator.standard_normal(expected.shape)
        return np.asarray(expected + deviation * noise, np.float32)

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        weights = beside(mean, precision).reshape(-1, *(1,) * (mean.ndim - 1))
        return weights * (count * mean - total), weights * count

    def residual_sums(self, appearance: Array, images: Array) -> tuple[Float64Array, Float64Array]:
        """Return the sum of squared residuals and the number of observed voxels, each (N, C)."""
        values, observed = self._sums(appearance, images, np.ones(images.shape[1]))
        return -2 * values, observed

    def noise_precision(
        self, squares: Array, observed: Array, power: Array | float = 0.0
    ) -> Float64Array:
        """Return the inverse variance of each channel, (C,): the maximum of ln p(f | a')."""
        variance = squares / np.maximum(observed, 1)
        largest = max(np.max(variance), np.max(power))
        least = max(_LEAST_SHARE * largest, _LEAST_VARIANCE) if largest else _NO_VARIANCE
        floor = np.maximum(_ROUNDING * power, least)
        return np.asarray(1 / np.maximum(variance, floor), np.float64)

    def log_likelihood_of_sums(self, squares: Array, observed: Array, precision: Array) -> float:
        """Return ln p(f | a') of all images, from sums (C,) of `residual_sums`."""
        return float(self._log_density(-squares / 2, observed, precision))
