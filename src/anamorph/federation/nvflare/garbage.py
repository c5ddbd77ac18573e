"""Garbage collection between large messages, which otherwise stay in memory.

NVFLARE's objects around a message form reference cycles. Python collects these only after many new
objects, however large they are, and a dozen messages of 64 MB would pile up.
"""

from __future__ import annotations

import gc

_LARGE = 2**20


class Garbage:
    """Counts the bytes of handled messages, and collects them when there are many."""

    def __init__(self) -> None:
        gc.freeze()  # later collections need not scan the objects that exist now
        self._n_bytes = 0

    def add(self, n_bytes: int) -> None:
        """Count a message of some bytes that is no longer needed."""
        self._n_bytes += n_bytes

    def collect(self) -> None:
        """Collect garbage if the messages since the last time were large."""
        if self._n_bytes > _LARGE:
            gc.collect()
            self._n_bytes = 0
