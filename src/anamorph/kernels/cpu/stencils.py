"""Stencils on periodic grids: the operator H + L, transfer between grids, and halos of blocks.

Fields are blocks (component, *padded space, lane), see `kernels.blocks`: each neighbour of a voxel
lies at one fixed distance in memory (`shifts`), and kernels run over long contiguous stretches.
Stretches are short enough (`CHUNK`) that the sums over axes and components stay in the first cache.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, formula, kernel
from anamorph.kernels.formulas.differences import mixed_difference, second_difference
from anamorph.kernels.formulas.interpolation import between, shared
from anamorph.kernels.formulas.symmetric import packed_place

CHUNK = 1024


@formula
def _add_second_difference(
    out: Array, x: Array, shift: int, begin: int, end: int, factor: float
) -> None:
    """Add ``factor`` times the second difference along an axis to a stretch of voxels."""
    here, after, before = (
        x[begin:end],
        x[begin + shift : end + shift],
        x[begin - shift : end - shift],
    )
    for i in range(end - begin):
        out[i] += factor * second_difference(before[i], here[i], after[i])


@formula
def _add_mixed_difference(
    out: Array, x: Array, one: int, other: int, begin: int, end: int, factor: float
) -> None:
    """Add ``factor`` times the difference along two axes to a stretch of voxels."""
    plus, minus = one + other, one - other
    a, b = x[begin + plus : end + plus], x[begin - plus : end - plus]
    c, d = x[begin + minus : end + minus], x[begin - minus : end - minus]
    for i in range(end - begin):
        out[i] += factor * mixed_difference(a[i], b[i], c[i], d[i])


@formula
def _add_product(out: Array, matrix: Array, x: Array, begin: int, end: int) -> None:
    """Add ``matrix * x`` to a stretch of voxels."""
    matrix_here, x_here = matrix[begin:end], x[begin:end]
    for i in range(end - begin):
        out[i] += matrix_here[i] * x_here[i]


@formula
def add_symmetric_product(out: Array, matrix: Array, x: Array, begin: int, end: int) -> None:
    """Add a packed or diagonal matrix at every voxel times x, (component, voxel), to a stretch."""
    size = x.shape[0]
    for i in range(size):
        _add_product(out[i], matrix[i], x[i], begin, end)
    if matrix.shape[0] > size:
        for i in range(size):
            for j in range(i + 1, size):
                entry = matrix[packed_place(i, j, size)]
                _add_product(out[i], entry, x[j], begin, end)
                _add_product(out[j], entry, x[i], begin, end)


@kernel
def bend(
    out: Array,
    x: Array,
    shifts: IntArray,
    first: Array,
    second: Array,
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
    out: Array,
    x: Array,
    bent: Array,
    hessian: Array,
    shifts: IntArray,
    absolute: Array,
    laplacian: Array,
    elastic: Array,
    subtract: bool,
    start: int,
    stop: int,
) -> None:
    """Write (H + L) x, or subtract it from `out`, between flat positions `start` and `stop`.

    Component i of the result is

        absolute[i] x_i - sum_a laplacian[i, a] d_a^2 bent_i
        - elastic[i, i] d_i^2 x_i + 4 sum_{j != i} elastic[i, j] d_i d_j x_j + sum_j H_ij x_j

    with d_a^2 second and d_a central differences; `elastic` is empty for uncoupled fields.
    `bent` comes from `bend`; `hessian` is diagonal or packed.
    """
    n_components = x.shape[0]
    work = np.empty((n_components, CHUNK), x.dtype)
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
                factor = elastic[i, j]
                if i == j:
                    _add_second_difference(stretch, x[i], shifts[i], begin, end, factor)
                else:
                    _add_mixed_difference(stretch, x[j], shifts[i], shifts[j], begin, end, factor)
        add_symmetric_product(work, hessian, x, begin, end)
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
    fine: Array,
    coarse: Array,
    left: IntArray,
    right: IntArray,
    fraction: Array,
) -> None:
    """Interpolate linearly along the middle axis of (outer, padded length, inner) arrays.

    Fine voxel i lies between the coarse voxels left[i] and right[i], at `fraction` of the way.
    """
    for outer in range(fine.shape[0]):
        for i in range(left.size):
            a, b = coarse[outer, left[i] + 1], coarse[outer, right[i] + 1]
            target = fine[outer, i + 1]
            for v in range(target.size):
                target[v] = between(a[v], b[v], fraction[i])


@kernel
def restrict_axis(
    coarse: Array,
    fine: Array,
    left: IntArray,
    right: IntArray,
    fraction: Array,
) -> None:
    """Average along the middle axis: the transpose of `prolong_axis`, over the ratio of lengths."""
    scale = fine.dtype.type((coarse.shape[1] - 2) / left.size)
    for outer in range(fine.shape[0]):
        coarse[outer] = 0
        for i in range(left.size):
            a, b = coarse[outer, left[i] + 1], coarse[outer, right[i] + 1]
            source = fine[outer, i + 1]
            for v in range(source.size):
                to_a, to_b = shared(scale * source[v], fraction[i])
                a[v] += to_a
                b[v] += to_b


@kernel
def fill_halo(block: Array, shape: Shape) -> None:
    """Fill the halo of a flat block, given its shape (component, *padded, lane)."""
    outer = shape[0]
    inner = block.size // outer
    for axis in range(1, len(shape) - 1):
        length = shape[axis]
        inner //= length
        for o in range(outer):
            first = o * length * inner
            last = first + (length - 1) * inner
            block[first : first + inner] = block[last - inner : last]
            block[last : last + inner] = block[first + inner : first + 2 * inner]
        outer *= length
