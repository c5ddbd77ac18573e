"""Stencils on a GPU: the twin of `kernels.stencils`, one thread per place in a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide

_ONE, _QUARTER = np.float32(1), np.float32(0.25)


@device_function
def _second_difference(x, i, v, shift):
    return (x[i, v] - x[i, v + shift]) + (x[i, v] - x[i, v - shift])


@device_kernel
def _bend(out, x, shifts, first, second, start, stop):
    v = start + cuda.grid(1)
    if v >= stop:
        return
    for i in range(x.shape[0]):
        total = first[0] * x[i, v]
        for axis in range(shifts.size):
            total += second[axis] * _second_difference(x, i, v, shifts[axis])
        out[i, v] = total


def bend(*arguments: Any) -> None:
    """Write ``first[0] x - sum_a second[a] d_a^2 x``: see the twin."""
    start, stop = arguments[-2:]
    _bend(stop - start, *arguments)


@device_kernel
def _apply_operator(
    out, x, bent, hessian, pairs, shifts, absolute, laplacian, elastic, subtract, start, stop
):
    v = start + cuda.grid(1)
    if v >= stop:
        return
    for i in range(x.shape[0]):
        total = absolute[i] * x[i, v]
        for axis in range(shifts.size):
            total += laplacian[i, axis] * _second_difference(bent, i, v, shifts[axis])
        for j in range(elastic.shape[1]):
            if i == j:
                total += elastic[i, i] * _second_difference(x, i, v, shifts[i])
            else:
                plus, minus = shifts[i] + shifts[j], shifts[i] - shifts[j]
                mixed = (x[j, v + plus] - x[j, v + minus]) + (x[j, v - plus] - x[j, v - minus])
                total -= _QUARTER * elastic[i, j] * mixed
        for packed in range(hessian.shape[0]):
            row, column = pairs[packed, 0], pairs[packed, 1]
            if row == i:
                total += hessian[packed, v] * x[column, v]
            elif column == i:
                total += hessian[packed, v] * x[row, v]
        out[i, v] = out[i, v] - total if subtract else total


def apply_operator(*arguments: Any) -> None:
    """Write (H + L) x, or subtract it from `out`: see the twin."""
    start, stop = arguments[-2:]
    _apply_operator(stop - start, *arguments)


@device_kernel
def _prolong_axis(fine, coarse, left, right, fraction):
    rest, v = divide(cuda.grid(1), fine.shape[2])
    outer, place = divide(rest, left.size)
    if outer < fine.shape[0]:
        a, b = coarse[outer, left[place] + 1, v], coarse[outer, right[place] + 1, v]
        fine[outer, place + 1, v] = (_ONE - fraction[place]) * a + fraction[place] * b


def prolong_axis(fine: Any, coarse: Any, left: Any, right: Any, fraction: Any) -> None:
    """Interpolate linearly along the middle axis of (outer, padded length, inner) arrays."""
    n_threads = fine.shape[0] * left.size * fine.shape[2]
    _prolong_axis(n_threads, fine, coarse, left, right, fraction)


@device_kernel
def _restrict_axis(coarse, fine, left, right, fraction):
    """One thread per coarse voxel, which looks for the few fine ones it lies next to."""
    n_coarse, n_fine = coarse.shape[1] - 2, left.size
    rest, v = divide(cuda.grid(1), fine.shape[2])
    outer, place = divide(rest, n_coarse)
    if outer >= coarse.shape[0]:
        return
    total = _ONE - _ONE
    # Fine voxels within one coarse voxel of this one, and one more at either end.
    first = place * n_fine // n_coarse - n_fine // n_coarse - 1
    last = (place + 1) * n_fine // n_coarse + n_fine // n_coarse + 1
    if last - first >= n_fine:
        first, last = 0, n_fine - 1
    for near in range(first, last + 1):
        _, source = divide(near + n_fine, n_fine)
        if left[source] == place:
            total += (_ONE - fraction[source]) * fine[outer, source + 1, v]
        if right[source] == place:
            total += fraction[source] * fine[outer, source + 1, v]
    coarse[outer, place + 1, v] = total * np.float32(n_coarse) / np.float32(n_fine)


def restrict_axis(coarse: Any, fine: Any, left: Any, right: Any, fraction: Any) -> None:
    """Average along the middle axis: the transpose of `prolong_axis`, over the ratio of lengths."""
    n_threads = coarse.shape[0] * (coarse.shape[1] - 2) * coarse.shape[2]
    _restrict_axis(n_threads, coarse, fine, left, right, fraction)
