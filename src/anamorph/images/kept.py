"""Images that are kept in memory once they are read, where they are few and small enough."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.readable import ReadableImages

_MOST_OF_BUDGET = 1 / 8


class KeptImages:
    """Images that are read from their files once.

    A fit reads all images some hundred times. Opening a small file takes longer than working on
    the image.

    Parameters
    ----------
    images : ReadableImages
    shape : tuple of int
        Of an image, (C, *space).
    """

    def __init__(self, images: ReadableImages, shape: tuple[int, ...]) -> None:
        self._images = images
        self._kept = np.empty((len(images), *shape), np.float32)
        self._is_kept = np.zeros(len(images), bool)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        if not self._is_kept[part].all():
            self._kept[part] = self._images.read(part)
            self._is_kept[part] = True
        return self._kept[part]


def can_be_kept(n_images: int, shape: tuple[int, ...], budget: int) -> bool:
    """Tell whether images of some shape (C, *space) take little of a budget, in bytes."""
    return 4 * n_images * math.prod(shape) <= _MOST_OF_BUDGET * budget
