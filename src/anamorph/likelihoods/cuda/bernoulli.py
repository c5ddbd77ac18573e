"""Binary images on a GPU: the twin of `likelihoods.bernoulli`."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide
from anamorph.likelihoods.bernoulli import LOADING, MOST_CERTAIN

_ZERO, _ONE = np.float32(0), np.float32(1)
_MOST, _LOADING = np.float32(MOST_CERTAIN), np.float32(LOADING)


@device_function
def _logistic(a):
    """Return s(a), s(a) (1 - s(a)) and -ln s(-a), from one exponential of -|a|."""
    t = math.exp(-abs(a))
    r = _ONE / (_ONE + t)
    s = r if a >= _ZERO else t * r
    return s, t * r * r, max(a, _ZERO) + math.log1p(t)


@device_kernel
def _evaluate(appearance, images, value):
    """One thread per image and voxel; all arrays are (N, voxel)."""
    n, x = divide(cuda.grid(1), images.shape[1])
    if n >= images.shape[0]:
        return
    f, a = images[n, x], min(max(appearance[n, x], -_MOST), _MOST)
    _, _, normaliser = _logistic(a)
    value[n, x] = f * a - normaliser if f == f else _ZERO


@device_kernel
def _differentiate(appearance, images, value, gradient, hessian):
    """One thread per image and voxel; all arrays are (N, voxel)."""
    n, x = divide(cuda.grid(1), images.shape[1])
    if n >= images.shape[0]:
        return
    f, a = images[n, x], min(max(appearance[n, x], -_MOST), _MOST)
    is_observed = f == f
    s, variance, normaliser = _logistic(a)
    value[n, x] = f * a - normaliser if is_observed else _ZERO
    gradient[n, x] = s - f if is_observed else _ZERO
    hessian[n, x] = variance + _LOADING if is_observed else _ZERO


def evaluate(appearance: Any, images: Any, values: Any) -> None:
    """Fill in ln p(f | a') per image."""
    value = cupy.empty_like(images)
    _evaluate(images.size, appearance, images, value)
    values[...] = value.sum(axis=1, dtype=np.float64)


def differentiate(appearance: Any, images: Any, values: Any, gradient: Any, hessian: Any) -> None:
    """Fill in ln p(f | a') per image, and the gradient and Hessian of -ln p(f | a')."""
    value = cupy.empty_like(images)
    _differentiate(images.size, appearance, images, value, gradient, hessian)
    values[...] = value.sum(axis=1, dtype=np.float64)
