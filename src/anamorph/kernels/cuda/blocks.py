"""Halos of blocks on a GPU: the twin of `kernels.blocks`."""

from __future__ import annotations

from typing import Any

from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import divide


@device_kernel
def _fill_halo(block, padded, n_components, lanes):
    """Copy into each place of the halo the voxel it stands for; one thread per place."""
    i = cuda.grid(1)
    voxel, lane = divide(i, lanes)
    rest, source, stride, is_halo = voxel, 0, 1, False
    for axis in range(len(padded) - 1, -1, -1):
        length = padded[axis]
        rest, coordinate = divide(rest, length)
        if coordinate == 0:
            coordinate, is_halo = length - 2, True
        elif coordinate == length - 1:
            coordinate, is_halo = 1, True
        source += coordinate * stride
        stride *= length
    component = rest
    if component < n_components and is_halo:
        block[i] = block[(component * stride + source) * lanes + lane]


def fill_halo_of(block: Any, shape: tuple[int, ...]) -> None:
    """Fill the halo of a block that is given flat, beside its shape (component, *padded, lane)."""
    _fill_halo(block.size, block, shape[1:-1], shape[0], shape[-1])
