"""Images that stay in memory after the first reading, if they are few and small."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import ReadableImages

_MOST_OF_BUDGET = 1 / 8


class KeptImages:
    """A collection that reads every image once.

    A fit needs all images some hundred times, and opening a small file takes longer than the
    computations on its image.

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
    """Return whether images of shape (C, *space) take at most an eighth of a budget in bytes."""
    return 4 * n_images * math.prod(shape) <= _MOST_OF_BUDGET * budget
