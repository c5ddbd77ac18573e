"""Relaxation and the algebra of fields on a GPU: the twin of `kernels.smoothing`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import divide

_ZERO = np.float32(0)
_PARTIAL_SUMS = 1 << 14  # threads that share a scalar product


@device_kernel
def _relax(step, x, residual, inverse, pairs, inertia, rate, start, stop):
    v = start + cuda.grid(1)
    if v >= stop:
        return
    for i in range(x.shape[0]):
        descent = _ZERO
        for packed in range(inverse.shape[0]):
            row, column = pairs[packed, 0], pairs[packed, 1]
            if row == i:
                descent += inverse[packed, v] * residual[column, v]
            elif column == i:
                descent += inverse[packed, v] * residual[row, v]
        move = inertia * step[i, v] + rate * descent
        step[i, v] = move
        x[i, v] += move


def relax(*arguments: Any) -> None:
    """Set ``step = inertia * step + rate * inverse residual`` and ``x += step``: see the twin."""
    start, stop = arguments[-2:]
    _relax(stop - start, *arguments)


def invert_blocks(out: Any, hessian: Any, pairs: Any, diagonal: Any) -> None:
    """Write the inverse of H + diag(diagonal) at every voxel, packed like H, in float64."""
    size, places = len(diagonal), pairs.get()
    if len(places) == size:
        for i in range(size):
            out[i] = 1 / (hessian[i].astype(np.float64) + diagonal[i])
        return
    matrix = {
        (min(i, j), max(i, j)): hessian[p] + (np.float64(diagonal[i]) if i == j else np.float64(0))
        for p, (i, j) in enumerate(places.tolist())
    }
    for k in range(size):
        _sweep(matrix, k, size)
    for p, (i, j) in enumerate(places.tolist()):
        out[p] = -matrix[i, j]


def _sweep(matrix: dict[tuple[int, int], Any], k: int, size: int) -> None:
    """Sweep pivot k; once every pivot is swept the matrix is minus its inverse."""

    def entry(i: int, j: int) -> Any:
        return matrix[min(i, j), max(i, j)]

    pivot = matrix[k, k]
    others = [i for i in range(size) if i != k]
    for i in others:
        for j in others:
            if i <= j:
                matrix[i, j] = matrix[i, j] - entry(i, k) * entry(k, j) / pivot
    for i in others:
        matrix[min(i, k), max(i, k)] = entry(i, k) / pivot
    matrix[k, k] = -1 / pivot


@device_kernel
def _add_scaled(out, factor, x):
    row, v = divide(cuda.grid(1), factor.size)
    if row < out.shape[0]:
        out[row, v] += factor[v] * x[row, v]


def add_scaled(out: Any, factor: Any, x: Any, start: int, stop: int) -> None:
    """Set ``out += factor * x``; out, x: (rows, length), factor: (length,)."""
    _add_scaled(out.size, out, factor, x)


@device_kernel
def _scale_and_add(out, factor, x):
    row, v = divide(cuda.grid(1), factor.size)
    if row < out.shape[0]:
        out[row, v] = factor[v] * out[row, v] + x[row, v]


def scale_and_add(out: Any, factor: Any, x: Any, start: int, stop: int) -> None:
    """Set ``out = factor * out + x``; out, x: (rows, length), factor: (length,)."""
    _scale_and_add(out.size, out, factor, x)


@device_kernel
def _sum_products(partial, a, b, padded, lanes):
    """Sum products over the voxels inside the halo, by many threads; partial : (threads, lanes)."""
    worker, lane = divide(cuda.grid(1), lanes)
    if worker >= partial.shape[0]:
        return
    total = np.float64(0)
    for place in range(worker, a.shape[1] // lanes, partial.shape[0]):
        rest, is_inside = place, True
        for axis in range(len(padded) - 1, -1, -1):
            rest, coordinate = divide(rest, padded[axis])
            is_inside = is_inside and coordinate > 0 and coordinate < padded[axis] - 1
        if is_inside:
            for component in range(a.shape[0]):
                left, right = a[component, place * lanes + lane], b[component, place * lanes + lane]
                total += np.float64(left) * np.float64(right)
    partial[worker, lane] = total


def dot_per_lane(a: Any, b: Any, padded: tuple[int, ...], lanes: int) -> Any:
    """Return the scalar products of fields (components, padded voxels and lanes), (lanes,)."""
    n_workers = max(1, min(_PARTIAL_SUMS, a.shape[1]) // lanes)
    partial = cupy.empty((n_workers, lanes), np.float64)
    _sum_products(n_workers * lanes, partial, a, b, padded, lanes)
    return partial.sum(axis=0)
