"""Images as the numerical core sees them: it asks how many there are, and reads some of them."""

from __future__ import annotations

from typing import Protocol

from anamorph.arrays.typing import Float32Array


class ReadableImages(Protocol):
    """Images that can be read a few at a time."""

    def __len__(self) -> int: ...

    def read(self, part: slice) -> Float32Array:
        """Return images (n, C, *space), NaN where missing."""
        ...
