"""The loops of likelihoods on a GPU: one thread per voxel. The twin of `cpu.likelihood_loops`."""

# ruff: noqa: F821  formulas are among the globals of the copies
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cpu.likelihood_loops import Formula, copy_for
from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divided

_ZERO = np.float32(0)


def _evaluate_channel(appearance, images, precision, value):
    """One thread per image, channel and voxel; all arrays but `precision` are (N, C, voxel)."""
    plane, x = divided(cuda.grid(1), images.shape[2])
    n, c = divided(plane, images.shape[1])
    if n >= images.shape[0]:
        return
    f = images[n, c, x]
    found, _, _ = voxel(appearance[n, c, x], f, precision[c])
    value[n, c, x] = found if f == f else _ZERO


def _differentiate_channel(appearance, images, precision, value, gradient, hessian):
    """One thread per image, channel and voxel; all arrays but `precision` are (N, C, voxel)."""
    plane, x = divided(cuda.grid(1), images.shape[2])
    n, c = divided(plane, images.shape[1])
    if n >= images.shape[0]:
        return
    f = images[n, c, x]
    is_observed = f == f
    found, slope, curvature = voxel(appearance[n, c, x], f, precision[c])
    value[n, c, x] = found if is_observed else _ZERO
    gradient[n, c, x] = slope if is_observed else _ZERO
    hessian[n, c, x] = curvature if is_observed else _ZERO


def _evaluate_voxel(appearance, images, n, x):
    """Return a* = max_c a'_c, the sum of exp(a'_c - a*), and ln p(f | a') of a voxel."""
    most, total = appearance[n, 0, x], _ZERO
    for c in range(1, appearance.shape[1]):
        most = max(most, appearance[n, c, x])
    for c in range(appearance.shape[1]):
        total += odds_of(appearance[n, c, x], most)
    value = -log_total(total)
    for c in range(appearance.shape[1]):
        value += log_odds(appearance[n, c, x], images[n, c, x], most)
    return most, total, value


def _evaluate_classes(appearance, images, value):
    """One thread per image and voxel; appearance, images : (N, C, voxel), value : (N, voxel)."""
    n, x = divided(cuda.grid(1), images.shape[2])
    if n >= images.shape[0]:
        return
    value[n, x] = _ZERO
    if images[n, 0, x] == images[n, 0, x]:
        _, _, value[n, x] = evaluate_voxel(appearance, images, n, x)


def _differentiate_classes(appearance, images, loading, value, gradient, hessian):
    """One thread per image and voxel; see `_evaluate_classes`."""
    n_classes = images.shape[1]
    n, x = divided(cuda.grid(1), images.shape[2])
    if n >= images.shape[0]:
        return
    if images[n, 0, x] != images[n, 0, x]:
        value[n, x] = _ZERO
        for c in range(n_classes):
            gradient[n, c, x] = _ZERO
        for p in range(hessian.shape[1]):
            hessian[n, p, x] = _ZERO
        return
    most, total, value[n, x] = evaluate_voxel(appearance, images, n, x)
    pair = n_classes
    for b in range(n_classes):
        s = odds_of(appearance[n, b, x], most) / total
        gradient[n, b, x] = slope_of(s, images[n, b, x])
        hessian[n, b, x] = variance_of(s) + loading
        for c in range(b + 1, n_classes):
            other = odds_of(appearance[n, c, x], most) / total
            hessian[n, pair, x] = covariance_of(s, other)
            pair += 1


@cache
def channel_loop(voxel: Formula) -> Callable[..., None]:
    """Return what `cpu.likelihood_loops.channel_loop` does, for arrays on a GPU."""
    evaluate = device_kernel(copy_for(_evaluate_channel, voxel=voxel))
    differentiate = device_kernel(copy_for(_differentiate_channel, voxel=voxel))

    def loop(
        appearance: Any, images: Any, precision: Any, values: Any, observed: Any, *derivatives: Any
    ) -> None:
        value = cupy.empty_like(images)
        if derivatives[0] is None:
            evaluate(images.size, appearance, images, precision, value)
        else:
            differentiate(images.size, appearance, images, precision, value, *derivatives)
        values[...] = value.sum(axis=2, dtype=np.float64)
        if observed is not None:
            observed[...] = cupy.count_nonzero(images == images, axis=2)

    return loop


@cache
def class_loop(**formulas: Formula) -> Callable[..., None]:
    """Return what `cpu.likelihood_loops.class_loop` does, for arrays on a GPU."""
    formulas["evaluate_voxel"] = device_function(copy_for(_evaluate_voxel, **formulas))
    evaluate = device_kernel(copy_for(_evaluate_classes, **formulas))
    differentiate = device_kernel(copy_for(_differentiate_classes, **formulas))

    def loop(appearance: Any, images: Any, loading: float, values: Any, *derivatives: Any) -> None:
        n_images, _, n_voxels = images.shape
        value = cupy.empty((n_images, n_voxels), np.float32)
        if derivatives[0] is None:
            evaluate(value.size, appearance, images, value)
        else:
            differentiate(value.size, appearance, images, loading, value, *derivatives)
        values[...] = value.sum(axis=1, dtype=np.float64)

    return loop
