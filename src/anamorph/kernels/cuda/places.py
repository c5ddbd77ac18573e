"""Counting on a GPU: from the number of a thread to images, voxels, coordinates and places.

A GPU counts in 32 bits and needs several instructions for 64, in which Numba counts. Kernels that
run often therefore add and multiply with `added` and `multiplied`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.cuda import extending

from anamorph.kernels.cuda.launch import device_function

Divisor = tuple[int, int, int]
_intrinsic: Any = extending.intrinsic  # which Numba declares with another type
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
    """Return start + offset as a place in memory: unsigned, as -1 would be the last place."""
    return np.uint32(added(start, offset))


def as_divisor(number: int) -> Divisor:
    """Return what `divided_quickly` needs of a number: itself, a factor and a shift.

    For any n below 2^31, n // number = (n * factor) >> shift (Granlund and Montgomery, 1994).
    """
    shift = 31 + (number - 1).bit_length()
    return number, 2**shift // number + 1, shift


@device_function
def read_length(divisor):
    """Return the number of a divisor."""
    return np.int32(divisor[0])


@device_function
def divided_quickly(number, divisor):
    """Return quotient and remainder, by a multiplication."""
    product = np.uint64(np.uint64(np.uint32(number)) * np.uint64(np.uint32(divisor[1])))
    quotient = np.int32(product >> np.uint64(divisor[2]))
    return quotient, added(number, -multiplied(quotient, divisor[0]))


@device_function
def divided(number, divisor):
    """Return quotient and remainder by a division: for any numbers, several times as slow."""
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
    """Return the coordinate on a periodic axis of any point within 32 bits."""
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
