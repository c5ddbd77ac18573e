"""Relaxation voxel by voxel, and the algebra of fields that conjugate gradients need, on a GPU."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel, flattened
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided,
    divided_quickly,
    multiplied,
    read_length,
    shifted,
)
from anamorph.kernels.cuda.stencils import row_product
from anamorph.kernels.formulas.symmetric import (
    packed_place,
    relaxed_step,
    swept_entry,
    swept_neighbour,
    swept_pivot,
)

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
        move = relaxed_step(step[shifted(place, 0)], descent, inertia, rate)
        step[shifted(place, 0)] = move
        x[shifted(place, 0)] += move


def relax(
    step: Any, x: Any, residual: Any, inverse: Any, inertia: Any, rate: Any, start: int, stop: int
) -> None:  # fmt: skip
    """Set ``step = inertia * step + rate * inverse residual`` and ``x += step``."""
    n_components, width = x.shape
    _relax(
        stop - start,
        *(flattened(step), flattened(x), flattened(residual), flattened(inverse), width),
        *(len(inverse) > n_components, tuple(range(n_components)), inertia, rate, start, stop),
    )


@device_kernel
def _invert_blocks(out, matrix, hessian, width, is_full, diagonal):
    """One thread per place, which sweeps its matrix in float64; arrays are flat."""
    v = np.int32(cuda.grid(1))
    if v >= width:
        return
    size = diagonal.size
    n_packed = size * (size + 1) // 2 if is_full else size
    for packed in range(n_packed):
        place = shifted(v, multiplied(packed, width))
        loading = diagonal[packed] if packed < size else np.float64(0)
        matrix[place] = np.float64(hessian[place]) + loading
    for k in range(size):
        pivot = matrix[shifted(v, multiplied(k, width))]
        if is_full:
            _sweep_others(matrix, k, size, v, width, pivot)
        matrix[shifted(v, multiplied(k, width))] = swept_pivot(pivot)
    for packed in range(n_packed):
        place = shifted(v, multiplied(packed, width))
        out[place] = -matrix[place]


@device_function
def _sweep_others(matrix, k, size, v, width, pivot):
    """Sweep the entries off pivot k of a packed matrix."""
    for i in range(size):
        left = matrix[shifted(v, multiplied(packed_place(i, k, size), width))]
        for j in range(i, size):
            if i != k and j != k:
                right = matrix[shifted(v, multiplied(packed_place(k, j, size), width))]
                place = shifted(v, multiplied(packed_place(i, j, size), width))
                matrix[place] = swept_entry(matrix[place], left, right, pivot)
    for i in range(size):
        if i != k:
            place = shifted(v, multiplied(packed_place(i, k, size), width))
            matrix[place] = swept_neighbour(matrix[place], pivot)


def invert_blocks(out: Any, hessian: Any, diagonal: Any) -> None:
    """Write the inverse of H + diag(diagonal) at every voxel, packed like H, in float64."""
    width, is_full = hessian.shape[1], len(hessian) > len(diagonal)
    matrix = cupy.empty(hessian.size, np.float64)
    arrays = flattened(out), matrix, flattened(hessian)
    _invert_blocks(width, *arrays, width, is_full, cupy.asarray(diagonal, np.float64))


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
