"""Labelled images on a GPU: the twin of `likelihoods.categorical`."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide
from anamorph.likelihoods.categorical import LOADING

_ZERO, _ONE = np.float32(0), np.float32(1)


@device_function
def _largest_and_total(appearance, n, x):
    """Return a* = max_c a'_c, and the sum of exp(a'_c - a*)."""
    most, total = appearance[n, 0, x], _ZERO
    for c in range(1, appearance.shape[1]):
        most = max(most, appearance[n, c, x])
    for c in range(appearance.shape[1]):
        total += math.exp(appearance[n, c, x] - most)
    return most, total


@device_function
def _log_likelihood(appearance, images, n, x, most, total):
    value = -math.log(total)
    for c in range(images.shape[1]):
        value += images[n, c, x] * (appearance[n, c, x] - most)
    return value


@device_kernel
def _evaluate(appearance, images, value):
    """One thread per image and voxel; appearance, images : (N, C, voxel), value : (N, voxel)."""
    n, x = divide(cuda.grid(1), images.shape[2])
    if n >= images.shape[0]:
        return
    value[n, x] = _ZERO
    if images[n, 0, x] == images[n, 0, x]:
        most, total = _largest_and_total(appearance, n, x)
        value[n, x] = _log_likelihood(appearance, images, n, x, most, total)


@device_kernel
def _differentiate(appearance, images, loading, value, gradient, hessian):
    """One thread per image and voxel; see `_evaluate`."""
    n_channels, n_voxels = images.shape[1], images.shape[2]
    n, x = divide(cuda.grid(1), n_voxels)
    if n >= images.shape[0]:
        return
    if images[n, 0, x] != images[n, 0, x]:
        value[n, x] = _ZERO
        for c in range(n_channels):
            gradient[n, c, x] = _ZERO
        for p in range(hessian.shape[1]):
            hessian[n, p, x] = _ZERO
        return
    most, total = _largest_and_total(appearance, n, x)
    value[n, x] = _log_likelihood(appearance, images, n, x, most, total)
    pair = n_channels
    for b in range(n_channels):
        s = math.exp(appearance[n, b, x] - most) / total
        gradient[n, b, x] = s - images[n, b, x]
        hessian[n, b, x] = s * (_ONE - s) + loading
        for c in range(b + 1, n_channels):
            hessian[n, pair, x] = -s * (math.exp(appearance[n, c, x] - most) / total)
            pair += 1


def evaluate(appearance: Any, images: Any, values: Any) -> None:
    """Fill in ln p(f | a') per image."""
    n_images, _, n_voxels = images.shape
    value = cupy.empty((n_images, n_voxels), np.float32)
    _evaluate(value.size, appearance, images, value)
    values[...] = value.sum(axis=1, dtype=np.float64)


def differentiate(appearance: Any, images: Any, values: Any, gradient: Any, hessian: Any) -> None:
    """Fill in ln p(f | a') per image, and the gradient and Hessian of -ln p(f | a')."""
    n_images, n_channels, n_voxels = images.shape
    value = cupy.empty((n_images, n_voxels), np.float32)
    loading = np.float32(LOADING * n_channels**2)
    _differentiate(value.size, appearance, images, loading, value, gradient, hessian)
    values[...] = value.sum(axis=1, dtype=np.float64)
