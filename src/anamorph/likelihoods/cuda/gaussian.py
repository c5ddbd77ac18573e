"""Gaussian noise on a GPU: the twin of `likelihoods.gaussian`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import divide

_ZERO = np.float32(0)


@device_kernel
def _residuals(appearance, images, precision, residual, hessian):
    """One thread per image, channel and voxel; all arrays but `precision` are (N, C, voxel)."""
    n_channels, n_voxels = images.shape[1], images.shape[2]
    plane, x = divide(cuda.grid(1), n_voxels)
    n, c = divide(plane, n_channels)
    if n >= images.shape[0]:
        return
    f = images[n, c, x]
    is_observed = f == f
    residual[n, c, x] = appearance[n, c, x] - f if is_observed else _ZERO
    hessian[n, c, x] = precision[c] if is_observed else _ZERO


def residual_sums(appearance: Any, images: Any, squares: Any, observed: Any) -> None:
    """Fill in the sum of squared residuals and the number of observed voxels, each (N, C)."""
    is_observed = images == images
    residual = cupy.where(is_observed, appearance - images, _ZERO)
    squares[...] = cupy.square(residual).sum(axis=2, dtype=np.float64)
    observed[...] = is_observed.sum(axis=2)


def differentiate(
    appearance: Any,
    images: Any,
    precision: Any,
    gradient: Any,
    hessian: Any,
    squares: Any,
    observed: Any,
) -> None:
    """Fill in gradients and Hessians, and what `residual_sums` does."""
    _residuals(images.size, appearance, images, precision, gradient, hessian)
    squares[...] = cupy.square(gradient).sum(axis=2, dtype=np.float64)
    observed[...] = cupy.count_nonzero(images == images, axis=2)
    gradient *= precision[:, None]
