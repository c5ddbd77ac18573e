"""Images on a coarser grid: averaged once, and kept in memory or in a file without a name."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.mapped import empty_mapped, let_go
from anamorph.arrays.typing import Float64Array, ReadableImages
from anamorph.geometry.coarsen import coarsened_with_spread
from anamorph.images.cache import can_be_kept
from anamorph.kernels.threads import n_threads, run_parallel

_BYTES_AT_ONCE = 2**26  # of fine images that a thread averages


class CoarseImages:
    """Averages of images over the cells of a coarser grid.

    Each image is read once. Averages that take more than their share of the memory budget are in a
    temporary file, which disappears with this process however it ends.

    Parameters
    ----------
    images : ReadableImages
        (N, C, *fine space).
    space : tuple of int
        Shape of the coarse grid.
    budget : int
        Bytes for images.

    Attributes
    ----------
    spread : (N, C) float64
        Sum over coarse voxels of the variance of what is observed in their cells: what averaging
        has lost of the squares of an image.
    """

    def __init__(self, images: ReadableImages, space: tuple[int, ...], budget: int) -> None:
        first = images.read(slice(0, 1))
        n_channels = first.shape[1]
        shape = (len(images), n_channels, *space)
        is_small = can_be_kept(len(images), shape[1:], budget)
        self._kept = np.empty(shape, np.float32) if is_small else empty_mapped(shape)
        self.spread: Float64Array = np.empty(shape[:2])

        def average(part: slice) -> None:
            self._kept[part], self.spread[part] = coarsened_with_spread(images.read(part), space)

        at_once = min(_BYTES_AT_ONCE, budget // (8 * n_threads())) // (4 * math.prod(first.shape))
        parts = split_evenly(slice(0, len(images)), max(1, at_once))
        for begin in range(0, len(parts), n_threads()):
            run_parallel(average, parts[begin : begin + n_threads()])
            let_go(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        return self._kept[part]
