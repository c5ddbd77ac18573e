"""Halos of blocks: see `kernels.blocks`."""

from __future__ import annotations

from anamorph.kernels.compile import Array, Shape, kernel


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
