"""Halos of blocks on a GPU: see `kernels.blocks`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided_quickly,
    multiplied,
    read_length,
    shifted,
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
