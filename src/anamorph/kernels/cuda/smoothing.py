"""Relaxation and the algebra of fields on a GPU: the twin of `kernels.smoothing`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel, flattened
from anamorph.kernels.cuda.places import (
    divided,
    divided_quickly,
    as_divisor,
    shifted,
    read_length,
    added,
    multiplied,
)
from anamorph.kernels.cuda.stencils import row_product

_PARTIAL_SUMS = 1 << 17  # threads that share a scalar product


@device_kernel
def _relax(step, x, residual, inverse, width, is_full, components, inertia, rate, start, stop):
    """One thread per place, for all components, of which the compiler knows the number."""
    v = added(cuda.grid(1), start)
    if v >= stop:
        return
    for i in range(len(components)):
        place = added(v, multiplied(i, width))
        descent = row_product(inverse, residual, v, width, i, len(components), is_full)
        move = inertia * step[shifted(place, 0)] + rate * descent
        step[shifted(place, 0)] = move
        x[shifted(place, 0)] += move


def relax(
    step: Any, x: Any, residual: Any, inverse: Any, pairs: Any, inertia: Any, rate: Any,
    start: int, stop: int,
) -> None:  # fmt: skip
    """Set ``step = inertia * step + rate * inverse residual`` and ``x += step``: see the twin."""
    n_components, width = x.shape
    _relax(
        stop - start,
        *(flattened(step), flattened(x), flattened(residual), flattened(inverse), width),
        *(len(pairs) > n_components, tuple(range(n_components)), inertia, rate, start, stop),
    )


def invert_blocks(out: Any, hessian: Any, pairs: Any, diagonal: Any) -> None:
    """Write the inverse of H + diag(diagonal) at every voxel, packed like H, in float64."""
    size, places = len(diagonal), np.asarray(pairs)
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
    row, v = divided(cuda.grid(1), factor.size)
    if row < out.shape[0]:
        out[row, v] += factor[v] * x[row, v]


def add_scaled(out: Any, factor: Any, x: Any, start: int, stop: int) -> None:
    """Set ``out += factor * x``; out, x: (rows, length), factor: (length,)."""
    _add_scaled(out.size, out, factor, x)


@device_kernel
def _scale_and_add(out, factor, x):
    row, v = divided(cuda.grid(1), factor.size)
    if row < out.shape[0]:
        out[row, v] = factor[v] * out[row, v] + x[row, v]


def scale_and_add(out: Any, factor: Any, x: Any, start: int, stop: int) -> None:
    """Set ``out = factor * out + x``; out, x: (rows, length), factor: (length,)."""
    _scale_and_add(out.size, out, factor, x)


@device_kernel
def _sum_products(partial, a, b, n_components, width, n_places, padded, lanes, n_workers):
    """Sum products over the voxels inside the halo, by many threads; partial : (workers, lanes).

    padded, lanes : divisors
    """
    worker, lane = divided_quickly(cuda.grid(1), lanes)
    if worker >= n_workers:
        return
    total = np.float64(0)
    for voxel in range(worker, n_places, n_workers):
        rest, is_inside = np.int32(voxel), True
        for axis in range(len(padded) - 1, -1, -1):
            rest, coordinate = divided_quickly(rest, padded[axis])
            is_inside = is_inside and coordinate > 0
            is_inside = is_inside and coordinate < added(read_length(padded[axis]), -1)
        if is_inside:
            place = added(multiplied(voxel, read_length(lanes)), lane)
            for _ in range(n_components):
                total += np.float64(a[shifted(place, 0)]) * np.float64(b[shifted(place, 0)])
                place = added(place, width)
    partial[worker, lane] = total


def dot_per_lane(a: Any, b: Any, padded: tuple[int, ...], lanes: int) -> Any:
    """Return the scalar products of fields (components, padded voxels and lanes), (lanes,)."""
    n_components, width = a.shape
    n_workers = max(1, min(_PARTIAL_SUMS, width) // lanes)
    partial = cupy.empty((n_workers, lanes), np.float64)
    _sum_products(
        n_workers * lanes,
        *(partial, flattened(a), flattened(b), n_components, width, width // lanes),
        *(tuple(map(as_divisor, padded)), as_divisor(lanes), n_workers),
    )
    return partial.sum(axis=0)
