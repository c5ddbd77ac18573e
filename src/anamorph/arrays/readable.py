"""What the numerical core asks of images: how many there are, and some of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ReadableImages(Protocol):
    """Images that can be read a few at a time."""

    def __len__(self) -> int: ...

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        ...
