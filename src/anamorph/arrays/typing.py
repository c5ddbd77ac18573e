"""Types of arrays and of images to read: the one place where they get their names.

Arrays may be NumPy's or CuPy's (see `devices`); types name those of NumPy for both.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Fields and images, float32 as a rule.
Array = NDArray[np.floating]
Float32Array = NDArray[np.float32]
#: Small matrices, latents, objectives and other sums.
Float64Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]


class ReadableImages(Protocol):
    """Images that can be read a few at a time."""

    def __len__(self) -> int: ...

    def read(self, part: slice) -> Float32Array:
        """Return images (n, C, *space), NaN where missing."""
