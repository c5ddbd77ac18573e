"""Where a thread stands: numbers of threads taken apart into images, voxels and coordinates.

A GPU counts in 32 bits, and takes several instructions for what has 64, which is how Numba counts.
Kernels that run often therefore add and multiply by `added` and `multiplied`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.cuda import extending

from anamorph.kernels.cuda.launch import device_function

Divisor = tuple[int, int, int]
_intrinsic: Any = extending.intrinsic  # what Numba says of its type is not so
_SIGNATURE = types.int32(types.int32, types.int32)


@_intrinsic
def added(typing, a, b):
    """Return a + b in 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, numbers: Any) -> Any:
        return builder.add(*numbers)

    return _SIGNATURE, generate


@_intrinsic
def multiplied(typing, a, b):
    """Return a * b in 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, numbers: Any) -> Any:
        return builder.mul(*numbers)

    return _SIGNATURE, generate


@device_function
def shifted(start, offset):
    """Return the place start + offset: unsigned, since negative ones would count from the end."""
    return np.uint32(added(start, offset))


def as_divisor(number: int) -> Divisor:
    """Return what `divided_quickly` wants to know of a number: it, a factor and a shift.

    For any n below 2^31, n // number = (n * factor) >> shift (Granlund and Montgomery, 1994).
    """
    shift = 31 + (number - 1).bit_length()
    return number, 2**shift // number + 1, shift


@device_function
def read_length(divisor):
    """Return the number that a divisor stands for."""
    return np.int32(divisor[0])


@device_function
def divided_quickly(number, divisor):
    """Return quotient and remainder, by a multiplication."""
    product = np.uint64(np.uint64(np.uint32(number)) * np.uint64(np.uint32(divisor[1])))
    quotient = np.int32(product >> np.uint64(divisor[2]))
    return quotient, added(number, -multiplied(quotient, divisor[0]))


@device_function
def divided(number, divisor):
    """Return quotient and remainder of any numbers, by a division: several multiplied as slow."""
    quotient = np.uint32(np.uint32(number) // np.uint32(divisor))
    remainder = np.uint32(np.uint32(number) - np.uint32(quotient * np.uint32(divisor)))
    return np.int64(quotient), np.int64(remainder)


@device_function
def find_coordinates(voxel, shape):
    """Return (z, y, x) of a voxel; z is 0 in a plane."""
    row, x = divided_quickly(voxel, shape[len(shape) - 1])
    z, y = divided_quickly(row, shape[len(shape) - 2])
    return z, y, x


@device_function
def wrapped(point, axis):
    """Return a coordinate on a periodic axis, of a point that may be anywhere within 32 bits."""
    is_before = point < 0
    _, place = divided_quickly(added(-1, -point) if is_before else point, axis)
    return added(read_length(axis), added(-1, -place)) if is_before else place


@device_function
def find_neighbours(voxel, coordinate, stride, length):
    """Return the voxels before and after one along an axis, on a periodic grid."""
    last = added(length, -1)
    span = multiplied(last, stride)
    before = added(voxel, -stride if coordinate > 0 else span)
    after = added(voxel, stride if coordinate < last else -span)
    return np.uint32(before), np.uint32(after)


@device_function
def packed_place(i, j, size):
    """Return where entry (i, j) of a symmetric matrix is: its diagonal first, then row by row."""
    if i == j:
        return i
    first, second = min(i, j), max(i, j)
    return size + first * size - first * (first + 1) // 2 + (second - first - 1)
