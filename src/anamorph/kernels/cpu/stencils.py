"""Stencils on periodic grids: the operator H + L, and the passage between fine and coarse grids.

Fields are blocks (components, *padded space, lanes), see `blocks`: each neighbour of a voxel lies
at one fixed distance in memory (`shifts`), and kernels run over long contiguous stretches.

Stretches are short enough (`CHUNK`) that the sums over axes and components stay in the first cache.
Second differences are summed as differences of differences: one wide stencil would cancel large
numbers, and lose w0 in float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels.compile import kernel, per_voxel

CHUNK = 1024


@per_voxel
def _add_second_difference(out, x, shift, begin, end, factor):  # type: ignore[no-untyped-def]
    """Add ``factor * (2 x[i] - x[i + shift] - x[i - shift])`` to a stretch of voxels."""
    here, after, before = (
        x[begin:end],
        x[begin + shift : end + shift],
        x[begin - shift : end - shift],
    )
    for i in range(end - begin):
        out[i] += factor * ((here[i] - after[i]) + (here[i] - before[i]))


@per_voxel
def _add_mixed_difference(out, x, one, other, begin, end, factor):  # type: ignore[no-untyped-def]
    """Add ``factor`` times the difference along two axes, a stretch of voxels at a time."""
    plus, minus = one + other, one - other
    a, b = x[begin + plus : end + plus], x[begin - plus : end - plus]
    c, d = x[begin + minus : end + minus], x[begin - minus : end - minus]
    for i in range(end - begin):
        out[i] += factor * ((a[i] - c[i]) + (b[i] - d[i]))


@per_voxel
def add_product(out, matrix, x, begin, end):  # type: ignore[no-untyped-def]
    """Add ``matrix * x`` to a stretch of voxels."""
    matrix_here, x_here = matrix[begin:end], x[begin:end]
    for i in range(end - begin):
        out[i] += matrix_here[i] * x_here[i]


@kernel
def bend(
    out: NDArray[np.floating],
    x: NDArray[np.floating],
    shifts: NDArray[np.int64],
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    start: int,
    stop: int,
) -> None:
    """Write ``first[0] x - sum_a second[a] d_a^2 x``, between flat positions `start` and `stop`.

    out, x: (components, padded voxels); d_a^2 is the second difference along axis a.
    """
    for component in range(x.shape[0]):
        field = x[component]
        for begin in range(start, stop, CHUNK):
            end = min(begin + CHUNK, stop)
            here, stretch = field[begin:end], out[component][begin:end]
            for i in range(end - begin):
                stretch[i] = first[0] * here[i]
            for axis in range(shifts.size):
                _add_second_difference(stretch, field, shifts[axis], begin, end, second[axis])


@kernel
def apply_operator(
    out: NDArray[np.floating],
    x: NDArray[np.floating],
    bent: NDArray[np.floating],
    hessian: NDArray[np.floating],
    pairs: NDArray[np.int64],
    shifts: NDArray[np.int64],
    absolute: NDArray[np.floating],
    laplacian: NDArray[np.floating],
    elastic: NDArray[np.floating],
    subtract: bool,
    start: int,
    stop: int,
) -> None:
    """Write (H + L) x, or subtract it from `out`, between flat positions `start` and `stop`.

    Component i of the result is

        absolute[i] x_i - sum_a laplacian[i, a] d_a^2 bent_i
        - elastic[i, i] d_i^2 x_i - sum_{j != i} elastic[i, j] d_i d_j x_j + sum_j H_ij x_j

    with d_a^2 second and d_a central differences; `elastic` is empty for uncoupled fields.
    `bent` comes from `bend`; the Hessian is packed, its p-th field is H_ij with i, j = pairs[p].
    """
    n_components = x.shape[0]
    work = np.empty((n_components, CHUNK), x.dtype)
    quarter = x.dtype.type(0.25)
    for begin in range(start, stop, CHUNK):
        end = min(begin + CHUNK, stop)
        for i in range(n_components):
            stretch, here = work[i], x[i][begin:end]
            for v in range(end - begin):
                stretch[v] = absolute[i] * here[v]
            for axis in range(shifts.size):
                _add_second_difference(
                    stretch, bent[i], shifts[axis], begin, end, laplacian[i, axis]
                )
            for j in range(elastic.shape[1]):
                if i == j:
                    _add_second_difference(stretch, x[i], shifts[i], begin, end, elastic[i, i])
                else:
                    factor = -quarter * elastic[i, j]
                    _add_mixed_difference(stretch, x[j], shifts[i], shifts[j], begin, end, factor)
        for packed in range(hessian.shape[0]):
            i, j = pairs[packed, 0], pairs[packed, 1]
            add_product(work[i], hessian[packed], x[j], begin, end)
            if i != j:
                add_product(work[j], hessian[packed], x[i], begin, end)
        for i in range(n_components):
            stretch, result = work[i], out[i][begin:end]
            if subtract:
                for v in range(end - begin):
                    result[v] -= stretch[v]
            else:
                for v in range(end - begin):
                    result[v] = stretch[v]


@kernel
def prolong_axis(
    fine: NDArray[np.floating],
    coarse: NDArray[np.floating],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    fraction: NDArray[np.floating],
) -> None:
    """Interpolate linearly along the middle axis of (outer, padded length, inner) arrays.

    Fine voxel i lies between the coarse voxels left[i] and right[i], at `fraction` of the way.
    """
    one = fine.dtype.type(1)
    for outer in range(fine.shape[0]):
        for i in range(left.size):
            a, b = coarse[outer, left[i] + 1], coarse[outer, right[i] + 1]
            target = fine[outer, i + 1]
            towards_b = fraction[i]
            towards_a = one - towards_b
            for v in range(target.size):
                target[v] = towards_a * a[v] + towards_b * b[v]


@kernel
def restrict_axis(
    coarse: NDArray[np.floating],
    fine: NDArray[np.floating],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    fraction: NDArray[np.floating],
) -> None:
    """Average along the middle axis: the transpose of `prolong_axis`, over the ratio of lengths."""
    one = fine.dtype.type(1)
    scale = fine.dtype.type((coarse.shape[1] - 2) / left.size)
    for outer in range(fine.shape[0]):
        coarse[outer] = 0
        for i in range(left.size):
            a, b = coarse[outer, left[i] + 1], coarse[outer, right[i] + 1]
            source = fine[outer, i + 1]
            towards_b = scale * fraction[i]
            towards_a = scale * (one - fraction[i])
            for v in range(source.size):
                a[v] += towards_a * source[v]
                b[v] += towards_b * source[v]
