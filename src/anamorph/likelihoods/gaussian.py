"""Gaussian noise, one variance per channel: J = (a' - f)^2 / (2 s2) + ln(2 pi s2) / 2.

The derivatives are g = (a' - f) / s2 and H = 1 / s2. Each channel may be missing on its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anamorph.arrays.namespaces import array_namespace, beside, kernels_for
from anamorph.kernels.compile import Array as KernelArray
from anamorph.kernels.compile import kernel
from anamorph.likelihoods.base import Array, Derivatives, Float64Array, Likelihood, flat


class Gaussian(Likelihood):
    """Images with stationary Gaussian noise."""

    name = "gaussian"
    # A voxel with noise of 5 % of the range tells as much as a hundred binary ones, and penalties
    # are measured against what voxels tell.
    default_penalties: ClassVar = {
        "shape": (0.001, 0.0, 16.0, 1.0, 1.0),
        "appearance": (0.01, 1.0, 1.0),
        "mean": (1e-5, 1e-3, 1e-3),
    }
    has_noise = True

    def n_hessian(self, n_channels: int) -> int:  # noqa: D102
        return n_channels

    def log_likelihood(  # noqa: D102
        self, appearance: Array, images: Array, precision: Array
    ) -> Float64Array:
        squares, observed = self.residual_sums(appearance, images)
        return _log_density(squares, observed, precision)

    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:  # noqa: D102
        gradient, hessian = np.empty_like(appearance), np.empty_like(appearance)
        squares, observed = array_namespace(images).empty((2, *images.shape[:2]))
        kernels_for(images, __name__).differentiate(
            flat(appearance), flat(images), beside(images, precision, appearance.dtype),
            flat(gradient), flat(hessian), squares, observed,
        )  # fmt: skip
        return Derivatives(_log_density(squares, observed, precision), gradient, hessian)

    def expectation(self, appearance: Array) -> Array:  # noqa: D102
        return appearance

    def mean_derivatives(  # noqa: D102
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        weights = beside(mean, precision).reshape(-1, *(1,) * (mean.ndim - 1))
        return weights * (count * mean - total), weights * count

    def residual_sums(self, appearance: Array, images: Array) -> tuple[Float64Array, Float64Array]:
        """Return the sum of squared residuals and the number of observed voxels, each (N, C)."""
        squares, observed = array_namespace(images).empty((2, *images.shape[:2]))
        kernels_for(images, __name__).residual_sums(
            flat(appearance), flat(images), squares, observed
        )
        return squares, observed


def _log_density(squares: Float64Array, observed: Float64Array, precision: Array) -> Float64Array:
    weight = beside(squares, precision, np.float64)
    density: Float64Array = observed * np.log(weight / (2 * np.pi)) - squares * weight
    values: Float64Array = density.sum(axis=1) / 2
    return values


@kernel
def residual_sums(
    appearance: KernelArray, images: KernelArray, squares: KernelArray, observed: KernelArray
) -> None:
    """Fill in the sum of squared residuals and the number of observed voxels, each (N, C)."""
    zero, one = appearance.dtype.type(0), np.int32(1)
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            a, f = appearance[n, c], images[n, c]
            total, count = 0.0, np.int32(0)
            for x in range(f.size):
                is_observed = f[x] == f[x]
                residual = a[x] - f[x] if is_observed else zero
                total += np.float64(residual * residual)
                count += one if is_observed else np.int32(0)
            squares[n, c], observed[n, c] = total, count


@kernel
def differentiate(
    appearance: KernelArray,
    images: KernelArray,
    precision: KernelArray,
    gradient: KernelArray,
    hessian: KernelArray,
    squares: KernelArray,
    observed: KernelArray,
) -> None:
    """Fill in gradients and Hessians, and what `residual_sums` does."""
    residual_sums(appearance, images, squares, observed)
    zero = appearance.dtype.type(0)
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            a, f, g, h = appearance[n, c], images[n, c], gradient[n, c], hessian[n, c]
            weight = precision[c]
            for x in range(f.size):
                is_observed = f[x] == f[x]
                g[x] = weight * (a[x] - f[x]) if is_observed else zero
                h[x] = weight if is_observed else zero
