"""Relaxation voxel by voxel, and the sums and products of fields that conjugate gradients need.

Layouts are those of `stencils`: flat (components, padded voxels), or rows of (voxels along the last
axis, lanes) where each lane is a system of its own with its own factor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels.compile import Array, IntArray, kernel
from anamorph.kernels.cpu.stencils import CHUNK, add_symmetric_product
from anamorph.kernels.formulas.symmetric import (
    packed_place,
    relaxed_step,
    swept_entry,
    swept_neighbour,
    swept_pivot,
)


@kernel
def invert_blocks(out: Array, hessian: Array, diagonal: NDArray[np.float64]) -> None:
    """Write the inverse of H + diag(diagonal) at every voxel, packed or diagonal as H is.

    out, hessian: (packed, padded voxels). Sweeps in float64, without pivoting: H is positive
    semi-definite and the diagonal positive.
    """
    size, n_packed = diagonal.size, hessian.shape[0]
    matrix = np.empty((n_packed, CHUNK))
    for begin in range(0, hessian.shape[1], CHUNK):
        length = min(CHUNK, hessian.shape[1] - begin)
        for packed in range(n_packed):
            loading = diagonal[packed] if packed < size else 0.0
            for v in range(length):
                matrix[packed, v] = np.float64(hessian[packed, begin + v]) + loading
        for k in range(size):
            _sweep(matrix, k, size, length)
        for packed in range(n_packed):
            for v in range(length):
                out[packed, begin + v] = -matrix[packed, v]


@kernel
def _sweep(matrix: NDArray[np.float64], k: int, size: int, length: int) -> None:
    """Sweep pivot k of packed or diagonal matrices (packed, voxel)."""
    pivot = matrix[k]
    if matrix.shape[0] > size:
        for i in range(size):
            for j in range(i, size):
                if i != k and j != k:
                    entry = matrix[packed_place(i, j, size)]
                    left, right = (
                        matrix[packed_place(i, k, size)],
                        matrix[packed_place(k, j, size)],
                    )
                    for v in range(length):
                        entry[v] = swept_entry(entry[v], left[v], right[v], pivot[v])
        for i in range(size):
            if i != k:
                entry = matrix[packed_place(i, k, size)]
                for v in range(length):
                    entry[v] = swept_neighbour(entry[v], pivot[v])
    for v in range(length):
        pivot[v] = swept_pivot(pivot[v])


@kernel
def relax(
    step: Array,
    x: Array,
    residual: Array,
    inverse: Array,
    inertia: float,
    rate: float,
    start: int,
    stop: int,
) -> None:
    """Set ``step = inertia * step + rate * inverse residual`` and ``x += step``.

    Fields are (components, padded voxels), `inverse` (packed, padded voxels).
    """
    n_components = x.shape[0]
    work = np.empty((n_components, CHUNK), x.dtype)
    for begin in range(start, stop, CHUNK):
        end = min(begin + CHUNK, stop)
        for i in range(n_components):
            work[i] = 0
        add_symmetric_product(work, inverse, residual, begin, end)
        for i in range(n_components):
            descent, move, result = work[i], step[i][begin:end], x[i][begin:end]
            for v in range(end - begin):
                move[v] = relaxed_step(move[v], descent[v], inertia, rate)
                result[v] += move[v]


@kernel
def add_scaled(
    out: Array,
    factor: Array,
    x: Array,
    start: int,
    stop: int,
) -> None:
    """Set ``out += factor * x`` in some rows; out, x: (rows, length), factor: (length,)."""
    for row in range(start, stop):
        target, source = out[row], x[row]
        for v in range(factor.size):
            target[v] += factor[v] * source[v]


@kernel
def scale_and_add(
    out: Array,
    factor: Array,
    x: Array,
    start: int,
    stop: int,
) -> None:
    """Set ``out = factor * out + x`` in some rows; out, x: (rows, length), factor: (length,)."""
    for row in range(start, stop):
        target, source = out[row], x[row]
        for v in range(factor.size):
            target[v] = factor[v] * target[v] + source[v]


@kernel
def sum_products(
    out: NDArray[np.float64],
    a: Array,
    b: Array,
    rows: IntArray,
    padding: int,
    start: int,
    stop: int,
) -> None:
    """Add the products of two fields over some of the listed rows to `out`, column by column.

    a, b: (components, all rows, padded length), out: (length,), in float64.
    """
    for component in range(a.shape[0]):
        for position in range(start, stop):
            left = a[component, rows[position]][padding : padding + out.size]
            right = b[component, rows[position]][padding : padding + out.size]
            for v in range(out.size):
                out[v] += np.float64(left[v]) * np.float64(right[v])
