"""Large messages leave memory as soon as they have been dealt with.

What NVFLARE keeps of a message refers to itself in circles, which Python looks for only once there
are many new objects, however large they are: a dozen messages of 64 MB would pile up.
"""

from __future__ import annotations

import gc

_LARGE = 2**20


class Garbage:
    """Collects what is left of large messages, before the next one."""

    def __init__(self) -> None:
        gc.freeze()  # what is there now stays, and need not be looked through each time
        self._n_bytes = 0

    def add(self, n_bytes: int) -> None:
        """Note that a message of some bytes is about to become garbage."""
        self._n_bytes += n_bytes

    def collect(self) -> None:
        """Collect garbage if there is a lot of it."""
        if self._n_bytes > _LARGE:
            gc.collect()
            self._n_bytes = 0
