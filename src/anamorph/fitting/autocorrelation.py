"""How many voxels count: the effective number of independent residuals in an image.

Residuals of neighbouring voxels are alike where noise is smooth. With rho(h) their correlation at
a lag of h voxels, an image of V voxels tells as much of a variance as V / sum_h rho(h)^2 voxels
with independent residuals would.

An estimate of rho(h) from one image is so noisy that its squares, summed over all lags, count
noise. So squares are products of the estimates from two *different* images, averaged over all pairs
of images: (S_1^2 - S_2) / (N (N - 1)), where S_1 and S_2 are sums over images of rho_n(h) and of
its square. Two sums per lag thus are all that leaves a site.
"""

from __future__ import annotations

import math

import numpy as np

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array

_LARGEST_LAG = 12
_LEAST_PAIRS = 0.1  # of an image's voxels, at a lag, for its correlation there to be known
_TRANSFORM_BYTES = 2**26  # for images that are transformed at a time


def lags_of(space: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many lags, from negative to positive, are looked at along each axis."""
    return tuple(2 * min((side - 1) // 2, _LARGEST_LAG) + 1 for side in space)


def correlation_sums(residuals: Array, is_seen: Array) -> tuple[Float64Array, Float64Array]:
    """Return sums over images of rho_n(h) and of its square, each in the shape of `lags_of`.

    Parameters
    ----------
    residuals : (N, C, *space)
        Pearson residuals, of mean 0; 0 where a voxel is missing.
    is_seen : (N, C, *space) bool
        Where a voxel is not missing.
    """
    space, xp = residuals.shape[2:], array_namespace(residuals)
    lags = lags_of(space)
    total, squares = xp.zeros(lags), xp.zeros(lags)
    padded = [side + lag // 2 for side, lag in zip(space, lags, strict=True)]
    bytes_per_image = 3 * 16 * residuals.shape[1] * math.prod(padded)
    for some in split_evenly(slice(0, len(residuals)), _TRANSFORM_BYTES // bytes_per_image):
        products, pairs = (
            _lagged_products(fields[some].astype(np.float64), padded, lags)
            for fields in (residuals, is_seen)
        )
        origin = (slice(None), *(slice(lag // 2, lag // 2 + 1) for lag in lags))
        has_residual = products[origin] > 0
        variance = xp.where(has_residual, products[origin], 1.0) / xp.maximum(pairs[origin], 1.0)
        is_known = has_residual & (pairs > _LEAST_PAIRS * pairs[origin])
        found = products / xp.maximum(pairs, 1.0) / variance
        found = xp.where(is_known, xp.clip(found, -1.0, 1.0), 0.0)
        total += found.sum(axis=0)
        squares += (found**2).sum(axis=0)
    return total, squares


def _lagged_products(fields: Array, padded: list[int], lags: tuple[int, ...]) -> Float64Array:
    """Return sums over voxels and channels of f(x) f(x + h), (N, *lags), by Fourier transforms."""
    xp, axes = array_namespace(fields), tuple(range(2, fields.ndim))
    power = xp.square(xp.abs(xp.fft.rfftn(fields, padded, axes=axes))).sum(axis=1)
    products = xp.fft.irfftn(power, padded, axes=tuple(axis - 1 for axis in axes))
    for axis, lag in enumerate(lags, start=1):
        products = xp.roll(products, lag // 2, axis=axis)
        products = products[(slice(None),) * axis + (slice(0, lag),)]
    found: Float64Array = products
    return found


def independent_share(total: Float64Array, squares: Float64Array, n_images: int) -> float:
    """Return the effective number of voxels over their number, at most 1.

    Parameters
    ----------
    total, squares : (*lags)
        Sums over all images, from `correlation_sums`.
    n_images : int
        At least 2.
    """
    if n_images < 2:
        raise ValueError(f"n_images must be an integer >= 2, got {n_images}")
    summed = float((total**2 - squares).sum()) / (n_images * (n_images - 1))
    return 1 / max(1.0, summed)
