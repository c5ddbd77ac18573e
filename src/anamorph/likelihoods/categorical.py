"""Labelled images, C classes: J = -sum_c f_c a'_c + ln sum_c exp a'_c, s = softmax(a').

The derivatives are g = s - f and the C x C matrix H = diag(s) - s s'. Images may be soft:
probabilities that sum to 1. A voxel is missing as a whole.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anamorph.arrays.namespaces import array_namespace, kernels_for
from anamorph.kernels.compile import Array as KernelArray
from anamorph.kernels.compile import kernel, per_voxel
from anamorph.kernels.cpu.elementary import exp_of_nonpositive
from anamorph.likelihoods.base import Array, Derivatives, Float64Array, Likelihood, flat

LOADING = 1e-4  # times C^2, on the diagonal
_START_LOADING = 1e-3


class Categorical(Likelihood):
    """Label maps as one channel per class, or probabilities of the classes."""

    name = "categorical"
    default_penalties: ClassVar = {
        "shape": (0.0002, 0.002, 0.2, 0.02, 0.02),
        "appearance": (0.0002, 0.02, 0.0),
        "mean": (1e-6, 1e-4, 1e-4),
    }

    def n_hessian(self, n_channels: int) -> int:  # noqa: D102
        return n_channels * (n_channels + 1) // 2

    def log_likelihood(  # noqa: D102
        self, appearance: Array, images: Array, precision: Array
    ) -> Float64Array:
        values: Float64Array = array_namespace(images).empty(len(images))
        kernels_for(images, __name__).evaluate(flat(appearance), flat(images), values)
        return values

    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:  # noqa: D102
        n_images, n_channels, *space = images.shape
        xp = array_namespace(images)
        values, gradient = xp.empty(n_images), xp.empty_like(appearance)
        hessian = xp.empty((n_images, self.n_hessian(n_channels), *space), appearance.dtype)
        kernels_for(images, __name__).differentiate(
            flat(appearance), flat(images), values, flat(gradient), flat(hessian)
        )
        return Derivatives(values, gradient, hessian)

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        odds = np.exp(appearance - appearance.max(axis=1, keepdims=True))
        expected: Array = odds / odds.sum(axis=1, keepdims=True)
        return expected

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
        reduced: Array = appearance - appearance.mean(axis=1, keepdims=True)
        return reduced


@per_voxel
def _softmax(a: KernelArray, odds: KernelArray) -> None:
    """Fill odds (C + 2, n) with exp(a'_c - a*), c < C, then their sum, then a* = max_c a'_c."""
    n_channels, n_voxels = a.shape
    total, most = odds[n_channels], odds[n_channels + 1]
    for x in range(n_voxels):
        most[x] = a[0, x]
        total[x] = 0
    for c in range(1, n_channels):
        row = a[c]
        for x in range(n_voxels):
            most[x] = max(most[x], row[x])
    for c in range(n_channels):
        row, exponential = a[c], odds[c]
        for x in range(n_voxels):
            exponential[x] = exp_of_nonpositive(row[x] - most[x])
        for x in range(n_voxels):
            total[x] += exponential[x]


@per_voxel
def _log_likelihood_of_piece(a: KernelArray, f: KernelArray, odds: KernelArray) -> float:
    n_channels = a.shape[0]
    total, most = odds[n_channels], odds[n_channels + 1]
    result = 0.0
    for x in range(a.shape[1]):
        if f[0, x] == f[0, x]:
            value = -np.float64(np.log(total[x]))
            for c in range(n_channels):
                value += np.float64(f[c, x] * (a[c, x] - most[x]))
            result += value
    return result


_PIECE = 512  # voxels at a time: their classes stay in the first-level cache


@kernel
def evaluate(appearance: KernelArray, images: KernelArray, values: KernelArray) -> None:
    """Fill in ln p(f | a') per image."""
    n_images, n_channels, n_voxels = images.shape
    odds = np.empty((n_channels + 2, _PIECE), appearance.dtype)
    for n in range(n_images):
        values[n] = 0
        for first in range(0, n_voxels, _PIECE):
            last = min(first + _PIECE, n_voxels)
            a, f = appearance[n, :, first:last], images[n, :, first:last]
            _softmax(a, odds)
            values[n] += _log_likelihood_of_piece(a, f, odds)


@kernel
def differentiate(
    appearance: KernelArray,
    images: KernelArray,
    values: KernelArray,
    gradient: KernelArray,
    hessian: KernelArray,
) -> None:
    """Fill in ln p(f | a') per image, and the gradient and Hessian of -ln p(f | a')."""
    n_images, n_channels, n_voxels = images.shape
    odds = np.empty((n_channels + 2, _PIECE), appearance.dtype)
    zero, one = appearance.dtype.type(0), appearance.dtype.type(1)
    loading = appearance.dtype.type(LOADING * n_channels**2)
    for n in range(n_images):
        values[n] = 0
        for first in range(0, n_voxels, _PIECE):
            last = min(first + _PIECE, n_voxels)
            a, f = appearance[n, :, first:last], images[n, :, first:last]
            _softmax(a, odds)
            values[n] += _log_likelihood_of_piece(a, f, odds)
            total = odds[n_channels]
            is_observed = f[0]
            for c in range(n_channels):
                s, g, h = odds[c], gradient[n, c, first:last], hessian[n, c, first:last]
                label = f[c]
                for x in range(last - first):
                    s[x] = s[x] / total[x] if is_observed[x] == is_observed[x] else zero
                for x in range(last - first):
                    g[x] = s[x] - label[x] if label[x] == label[x] else zero
                for x in range(last - first):
                    h[x] = s[x] * (one - s[x]) + loading if label[x] == label[x] else zero
            pair = n_channels
            for b in range(n_channels):
                for c in range(b + 1, n_channels):
                    s, other, h = odds[b], odds[c], hessian[n, pair, first:last]
                    for x in range(last - first):
                        h[x] = -s[x] * other[x]
                    pair += 1
