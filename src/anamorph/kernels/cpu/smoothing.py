"""Relaxation voxel by voxel, and the sums and products of fields that conjugate gradients need.

Layouts are those of `stencils`: (components, padded voxels) seen flat, or rows of (voxels along the
last axis, lanes) where each lane is a system of its own with its own factor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels.compile import kernel
from anamorph.kernels.cpu.stencils import CHUNK, add_product


@kernel
def invert_blocks(
    out: NDArray[np.floating],
    hessian: NDArray[np.floating],
    pairs: NDArray[np.int64],
    diagonal: NDArray[np.float64],
) -> None:
    """Write the inverse of H + diag(diagonal) at every voxel, packed like H.

    out, hessian: (packed, padded voxels). Gauss-Jordan in float64, by symmetric sweeps, without
    pivoting: H is positive semi-definite and the diagonal positive.
    """
    size = diagonal.size
    matrix = np.zeros((size, size, CHUNK))
    for begin in range(0, hessian.shape[1], CHUNK):
        length = min(CHUNK, hessian.shape[1] - begin)
        for packed in range(hessian.shape[0]):
            i, j = pairs[packed, 0], pairs[packed, 1]
            for v in range(length):
                value = np.float64(hessian[packed, begin + v])
                matrix[i, j, v] = value + diagonal[i] if i == j else value
                matrix[j, i, v] = matrix[i, j, v]
        for k in range(size):
            _sweep(matrix, k, length)
        for packed in range(hessian.shape[0]):
            i, j = pairs[packed, 0], pairs[packed, 1]
            for v in range(length):
                out[packed, begin + v] = -matrix[i, j, v]


@kernel
def _sweep(matrix: NDArray[np.float64], k: int, length: int) -> None:
    """Sweep pivot k; once every pivot is swept the matrix is minus its inverse."""
    size = matrix.shape[0]
    pivot = matrix[k, k]
    for i in range(size):
        for j in range(i, size):
            if i != k and j != k:
                for v in range(length):
                    matrix[i, j, v] -= matrix[i, k, v] * matrix[k, j, v] / pivot[v]
                    matrix[j, i, v] = matrix[i, j, v]
    for i in range(size):
        if i != k:
            for v in range(length):
                matrix[i, k, v] /= pivot[v]
                matrix[k, i, v] = matrix[i, k, v]
    for v in range(length):
        pivot[v] = -1 / pivot[v]


@kernel
def relax(
    step: NDArray[np.floating],
    x: NDArray[np.floating],
    residual: NDArray[np.floating],
    inverse: NDArray[np.floating],
    pairs: NDArray[np.int64],
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
        for packed in range(inverse.shape[0]):
            i, j = pairs[packed, 0], pairs[packed, 1]
            add_product(work[i], inverse[packed], residual[j], begin, end)
            if i != j:
                add_product(work[j], inverse[packed], residual[i], begin, end)
        for i in range(n_components):
            descent, move, result = work[i], step[i][begin:end], x[i][begin:end]
            for v in range(end - begin):
                move[v] = inertia * move[v] + rate * descent[v]
                result[v] += move[v]


@kernel
def add_scaled(
    out: NDArray[np.floating],
    factor: NDArray[np.floating],
    x: NDArray[np.floating],
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
    out: NDArray[np.floating],
    factor: NDArray[np.floating],
    x: NDArray[np.floating],
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
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    rows: NDArray[np.int64],
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
