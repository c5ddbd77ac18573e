"""Binary images: J = -(f a' + ln s(-a')) with the logistic function s(a') = 1 / (1 + exp(-a')).

The derivatives are g = s - f and H = s (1 - s). Images may be soft, with values from 0 to 1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anamorph.arrays.namespaces import array_namespace, kernels_for
from anamorph.kernels.compile import Array as KernelArray
from anamorph.kernels.compile import kernel, per_voxel
from anamorph.kernels.cpu.elementary import exp_of_nonpositive, log1p_of_fraction
from anamorph.likelihoods.base import Array, Derivatives, Float64Array, Likelihood

MOST_CERTAIN = 40.0  # |a'| beyond which a voxel is as certain as it gets
LOADING = 1e-8
_START_LOADING = 1e-3


class Bernoulli(Likelihood):
    """Binary images, or probabilities of being foreground."""

    name = "bernoulli"
    default_penalties: ClassVar = {
        "shape": (0.0002, 0.002, 0.2, 0.02, 0.02),
        "appearance": (0.0002, 0.02, 0.0),
        "mean": (1e-6, 1e-4, 1e-4),
    }
    shape_loading = 1e-4

    def n_hessian(self, n_channels: int) -> int:  # noqa: D102
        return n_channels

    def log_likelihood(  # noqa: D102
        self, appearance: Array, images: Array, precision: Array
    ) -> Float64Array:
        values: Float64Array = array_namespace(images).empty(len(images))
        kernels_for(images, __name__).evaluate(_flat(appearance), _flat(images), values)
        return values

    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:  # noqa: D102
        values = array_namespace(images).empty(len(images))
        gradient, hessian = np.empty_like(appearance), np.empty_like(appearance)
        kernels_for(images, __name__).differentiate(
            _flat(appearance), _flat(images), values, _flat(gradient), _flat(hessian)
        )
        return Derivatives(values, gradient, hessian)

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        certain = np.clip(appearance, -MOST_CERTAIN, MOST_CERTAIN)
        expected: Array = 1 / (1 + np.exp(-certain))
        return expected

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        s = self.expectation(mean)
        return count * s - total, count * (s * (1 - s) + _START_LOADING)


def _flat(images: Array) -> Array:
    """Return images as (N, voxel): channels are independent, so they count as voxels."""
    return images.reshape(len(images), -1)


@per_voxel
def _logistic(a: float) -> tuple[float, float, float]:
    """Return s(a), s(a) (1 - s(a)) and -ln s(-a), from one exponential of -|a|."""
    most, zero, one = np.float32(MOST_CERTAIN), np.float32(0), np.float32(1)
    certain = min(max(np.float32(a), -most), most)
    t = exp_of_nonpositive(-abs(certain))
    r = one / (one + t)
    s = r if certain >= zero else t * r
    return s, t * r * r, max(certain, zero) + log1p_of_fraction(t)


@kernel
def evaluate(appearance: KernelArray, images: KernelArray, values: KernelArray) -> None:
    """Fill in ln p(f | a') per image."""
    most, zero = np.float32(MOST_CERTAIN), np.float32(0)
    for n in range(images.shape[0]):
        a, f = appearance[n], images[n]
        total = 0.0
        for x in range(f.size):
            _, _, normaliser = _logistic(a[x])
            certain = min(max(np.float32(a[x]), -most), most)
            total += np.float64(f[x] * certain - normaliser if f[x] == f[x] else zero)
        values[n] = total


@kernel
def differentiate(
    appearance: KernelArray,
    images: KernelArray,
    values: KernelArray,
    gradient: KernelArray,
    hessian: KernelArray,
) -> None:
    """Fill in ln p(f | a') per image, and the gradient and Hessian of -ln p(f | a')."""
    most, zero, loading = np.float32(MOST_CERTAIN), np.float32(0), np.float32(LOADING)
    for n in range(images.shape[0]):
        a, f, g, h = appearance[n], images[n], gradient[n], hessian[n]
        total = 0.0
        for x in range(f.size):
            is_observed = f[x] == f[x]
            s, variance, normaliser = _logistic(a[x])
            certain = min(max(np.float32(a[x]), -most), most)
            total += np.float64(f[x] * certain - normaliser if is_observed else zero)
            g[x] = s - f[x] if is_observed else zero
            h[x] = variance + loading if is_observed else zero
        values[n] = total
