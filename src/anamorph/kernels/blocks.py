"""Blocks: a layout in memory in which plain loops over a few images run at full vector width.

A block holds images as (component, *padded space, lane). Images are the lanes, the last axis: even
rows of small images are long contiguous runs. Each spatial axis has a periodic halo of one voxel at
both ends: neighbours are always the same distance apart in memory, and no loop needs a modulo.
Loops run straight through the halo, which is filled again afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels.compile import Array
from anamorph.kernels.cpu.stencils import fill_halo

# A block of one field should stay in a processor's second-level cache.
_BLOCK_BYTES = 2**18
_MOST_LANES = 32


@dataclass(frozen=True)
class Blocks:
    """Where things are in a block of `lanes` images on a grid of shape `space`."""

    space: tuple[int, ...]
    lanes: int

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """Shape of the grid with its halo."""
        return tuple(n + 2 for n in self.space)

    @cached_property
    def shifts(self) -> NDArray[np.intp]:
        """Distance in memory to the next voxel along each axis, shape (d,)."""
        lengths = (*self.padded[1:], self.lanes)
        return np.cumprod(lengths[::-1])[::-1].astype(np.intp)

    @cached_property
    def row_offsets(self) -> NDArray[np.intp]:
        """Steps of -1, 0, 1 along all axes but the last, shape (3^(d-1), d-1)."""
        return np.array(list(product((-1, 0, 1), repeat=len(self.space) - 1)), dtype=np.intp)

    @cached_property
    def row_shifts(self) -> NDArray[np.intp]:
        """Distance in memory of each of `row_offsets`, shape (3^(d-1),)."""
        return self.row_offsets @ self.shifts[:-1]

    @cached_property
    def interior(self) -> tuple[slice, ...]:
        """Index of the voxels inside the halo."""
        return (slice(None), *(slice(1, -1),) * len(self.space))

    @cached_property
    def run(self) -> tuple[int, int]:
        """First and last (exclusive) place in memory of the voxels inside the halo."""
        first = int(self.shifts.sum())
        return first, int(np.prod(self.padded)) * self.lanes - first

    def empty(self, n_components: int, dtype: np.dtype[np.floating]) -> Array:
        """Return a block with nothing in it yet."""
        return np.empty((n_components, *self.padded, self.lanes), dtype)

    def load(self, images: Array) -> Array:
        """Return images (lane, component, *space) as a block."""
        block = self.empty(images.shape[1], images.dtype)
        block[self.interior] = np.moveaxis(images, 0, -1)
        self.fill_halo(block)
        return block

    def unload(self, block: Array) -> Array:
        """Return a block seen as images (lane, component, *space)."""
        return np.moveaxis(block[self.interior], -1, 0)

    def fill_halo(self, block: Array) -> None:
        """Copy the voxels at both ends of each axis into the halo at its other end."""
        fill_halo(block.reshape(-1), block.shape)


def lanes_per_block(n_components: int, space: tuple[int, ...], itemsize: int) -> int:
    """Return how many images to put into one block."""
    image_bytes = n_components * int(np.prod(space)) * itemsize
    return int(np.clip(_BLOCK_BYTES // image_bytes, 1, _MOST_LANES))
