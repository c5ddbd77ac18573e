"""Where a thread stands: numbers of threads taken apart into images, voxels and coordinates."""

from __future__ import annotations

import numpy as np

from anamorph.kernels.cuda.launch import device_function


@device_function
def divide(number, divisor):
    """Return quotient and remainder, in 32 bits: in 64 they would take longer than most kernels."""
    quotient = np.uint32(np.uint32(number) // np.uint32(divisor))
    remainder = np.uint32(np.uint32(number) - np.uint32(quotient * np.uint32(divisor)))
    return np.int64(quotient), np.int64(remainder)


@device_function
def index(place):
    """Return a place in memory that is known not to count from the end, as negative ones do."""
    return np.int64(np.uint32(place))


@device_function
def neighbours(voxel, coordinate, stride, length):
    """Return the voxels before and after one along an axis, on a periodic grid."""
    span = (length - 1) * stride
    before = voxel - stride if coordinate > 0 else voxel + span
    after = voxel + stride if coordinate < length - 1 else voxel - span
    return index(before), index(after)
