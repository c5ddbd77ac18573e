"""Stencils and halos on a GPU, one thread per place in a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel, flattened
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided_quickly,
    multiplied,
    read_length,
    shifted,
    wrapped,
)
from anamorph.kernels.formulas.differences import mixed_difference, second_difference
from anamorph.kernels.formulas.interpolation import between, shared
from anamorph.kernels.formulas.symmetric import packed_place

_ZERO = np.float32(0)


@device_function
def _second_difference_at(x, place, shift):
    return second_difference(
        x[shifted(place, -shift)], x[shifted(place, 0)], x[shifted(place, shift)]
    )


@device_function
def _mixed_difference_at(x, place, one, other):
    return mixed_difference(
        x[shifted(place, added(one, other))],
        x[shifted(place, added(-one, -other))],
        x[shifted(place, added(one, -other))],
        x[shifted(place, added(other, -one))],
    )


@device_kernel
def _bend(out, x, shifts, first, second, start, stop):
    """One thread per place of all components, seen as one flat stretch."""
    place = added(cuda.grid(1), start)
    if place >= stop:
        return
    total = first[0] * x[shifted(place, 0)]
    for axis in range(len(shifts)):
        total += second[axis] * _second_difference_at(x, place, shifts[axis])
    out[shifted(place, 0)] = total


def bend(out: Any, x: Any, shifts: Any, first: Any, second: Any, start: int, stop: int) -> None:
    """Write ``first[0] x - sum_a second[a] d_a^2 x``; constants are tuples."""
    n_components, width = x.shape
    last = (n_components - 1) * width + stop
    _bend(last - start, flattened(out), flattened(x), shifts, first, second, start, last)


@device_function
def row_product(matrix, x, v, width, i, size, is_full):
    """Return row i of a packed matrix multiplied x, at one place; matrices may be diagonal."""
    if not is_full:
        place = added(v, multiplied(i, width))
        return matrix[shifted(place, 0)] * x[shifted(place, 0)]
    total = _ZERO
    for j in range(size):
        entry = matrix[shifted(v, multiplied(packed_place(i, j, size), width))]
        total += entry * x[shifted(v, multiplied(j, width))]
    return total


@device_function
def _apply_row(i, v, fields, width, is_full, subtract, constants):
    """Write component i of (H + L) x at one place."""
    out, x, bent, hessian = fields
    shifts, absolute, laplacian, elastic, coupled = constants
    place = added(v, multiplied(i, width))
    total = absolute[i] * x[shifted(place, 0)]
    for axis in range(len(shifts)):
        total += laplacian[i][axis] * _second_difference_at(bent, place, shifts[axis])
    for j in range(len(coupled)):
        if i == j:
            total += elastic[i][i] * _second_difference_at(x, place, shifts[i])
        else:
            mixed = _mixed_difference_at(x, added(v, multiplied(j, width)), shifts[i], shifts[j])
            total += elastic[i][j] * mixed
    total += row_product(hessian, x, v, width, i, len(absolute), is_full)
    out[shifted(place, 0)] = out[shifted(place, 0)] - total if subtract else total


@device_kernel
def _apply_operator(
    out, x, bent, hessian, width, is_full, subtract, shifts, absolute, laplacian, elastic,
    coupled, start, stop,
):  # fmt: skip
    """One thread per place, for all components.

    coupled : one number per component that elasticity couples, or none
    """
    v = added(cuda.grid(1), start)
    if v >= stop:
        return
    fields = out, x, bent, hessian
    constants = shifts, absolute, laplacian, elastic, coupled
    # The first rows one by one: the compiler would not unroll the loop.
    _apply_row(0, v, fields, width, is_full, subtract, constants)
    if len(absolute) > 1:
        _apply_row(1, v, fields, width, is_full, subtract, constants)
    if len(absolute) > 2:
        _apply_row(2, v, fields, width, is_full, subtract, constants)
    for i in range(3, len(absolute)):
        _apply_row(i, v, fields, width, is_full, subtract, constants)


def apply_operator(
    out: Any, x: Any, bent: Any, hessian: Any, shifts: Any, absolute: Any, laplacian: Any,
    elastic: Any, subtract: bool, start: int, stop: int,
) -> None:  # fmt: skip
    """Write (H + L) x, or subtract it from `out`; constants are tuples."""
    n_components, width = x.shape
    # Without elasticity nothing is coupled, and any numbers will do for `elastic`.
    elasticity = (elastic, shifts) if elastic[0] else (laplacian, ())
    _apply_operator(
        stop - start,
        *(
            flattened(out),
            flattened(x),
            flattened(bent),
            flattened(hessian),
            width,
            len(hessian) > n_components,
        ),
        *(subtract, shifts, absolute, laplacian, *elasticity, start, stop),
    )


@device_kernel
def _prolong_axis(fine, coarse, left, right, fraction, n_outer, n_fine, n_coarse, n_inner):
    """One thread per fine voxel; arrays are flat, n_fine and n_inner divisors."""
    rest, v = divided_quickly(cuda.grid(1), n_inner)
    outer, place = divided_quickly(rest, n_fine)
    if outer < n_outer:
        inner, first = read_length(n_inner), added(multiplied(outer, added(n_coarse, 2)), 1)
        a = coarse[shifted(multiplied(added(first, left[place]), inner), v)]
        b = coarse[shifted(multiplied(added(first, right[place]), inner), v)]
        here = added(multiplied(outer, added(read_length(n_fine), 2)), added(place, 1))
        fine[shifted(multiplied(here, inner), v)] = between(a, b, fraction[place])


def prolong_axis(fine: Any, coarse: Any, left: Any, right: Any, fraction: Any) -> None:
    """Interpolate linearly along the middle axis of (outer, padded length, inner) arrays."""
    n_outer, padded, n_inner = coarse.shape
    _prolong_axis(
        n_outer * left.size * n_inner,
        *(flattened(fine), flattened(coarse), left, right, fraction),
        *(n_outer, as_divisor(left.size), padded - 2, as_divisor(n_inner)),
    )


@device_kernel
def _restrict_axis(
    coarse, fine, left, right, fraction, ratio, n_outer, n_fine, n_coarse, n_inner, reach
):
    """One thread per coarse voxel, which gathers from the few fine voxels around it.

    Arrays are flat, n_fine, n_coarse and n_inner divisors.
    """
    rest, v = divided_quickly(cuda.grid(1), n_inner)
    outer, place = divided_quickly(rest, n_coarse)
    if outer >= n_outer:
        return
    inner, last = read_length(n_inner), added(read_length(n_fine), -1)
    start = added(multiplied(outer, added(last, 3)), 1)
    total = _ZERO
    # Fine voxels within one coarse voxel of this one, and one more at either end.
    before, _ = divided_quickly(multiplied(place, read_length(n_fine)), n_coarse)
    after, _ = divided_quickly(multiplied(added(place, 1), read_length(n_fine)), n_coarse)
    before, after = added(before, -reach), added(after, reach)
    if added(after, -before) > last:
        before, after = np.int32(0), last
    for near in range(before, added(after, 1)):
        source = wrapped(near, n_fine)
        value = ratio * fine[shifted(multiplied(added(start, source), inner), v)]
        to_left, to_right = shared(value, fraction[source])
        if left[source] == place:
            total += to_left
        if right[source] == place:
            total += to_right
    here = added(multiplied(outer, added(read_length(n_coarse), 2)), added(place, 1))
    coarse[shifted(multiplied(here, inner), v)] = total


def restrict_axis(coarse: Any, fine: Any, left: Any, right: Any, fraction: Any) -> None:
    """Average along the middle axis: the transpose of `prolong_axis`, over the ratio of lengths."""
    n_outer, padded, n_inner = coarse.shape
    n_coarse, n_fine = padded - 2, left.size
    _restrict_axis(
        n_outer * n_coarse * n_inner,
        *(flattened(coarse), flattened(fine), left, right, fraction, np.float32(n_coarse / n_fine)),
        *(
            n_outer,
            as_divisor(n_fine),
            as_divisor(n_coarse),
            as_divisor(n_inner),
            n_fine // n_coarse + 1,
        ),
    )


@device_kernel
def _fill_halo(block, padded, n_components, lanes):
    """Copy into each place of the halo the voxel that it repeats; one thread per place.

    padded, lanes : divisors
    """
    i = cuda.grid(1)
    voxel, lane = divided_quickly(i, lanes)
    rest, source, stride, is_halo = voxel, np.int32(0), np.int32(1), False
    for axis in range(len(padded) - 1, -1, -1):
        length = read_length(padded[axis])
        rest, coordinate = divided_quickly(rest, padded[axis])
        if coordinate == 0:
            coordinate, is_halo = added(length, -2), True
        elif coordinate == added(length, -1):
            coordinate, is_halo = np.int32(1), True
        source = added(source, multiplied(coordinate, stride))
        stride = multiplied(stride, length)
    component = rest
    if component < n_components and is_halo:
        voxel = added(multiplied(component, stride), source)
        block[np.uint32(i)] = block[shifted(multiplied(voxel, read_length(lanes)), lane)]


def fill_halo(block: Any, shape: tuple[int, ...]) -> None:
    """Fill the halo of a flat block, given its shape (component, *padded, lane)."""
    padded = tuple(map(as_divisor, shape[1:-1]))
    _fill_halo(block.size, block, padded, shape[0], as_divisor(shape[-1]))
