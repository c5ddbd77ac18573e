"""Arrays in files without a name, mapped into memory a part at a time.

A process that works on more than it has memory for keeps what it computes in such arrays, works
on them part by part, and lets go of the parts: their numbers stay in the file, and the file goes
with the last array that shows it.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import is_on_device

Array = NDArray[np.floating]

_BLOCK_BYTES = 2**26


def empty_mapped(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a float32 array in a temporary file, which has no name."""
    with tempfile.TemporaryFile() as file:  # the mapping outlives it
        return np.asarray(np.memmap(file, np.float32, "w+", shape=shape))


def is_mapped(array: object) -> bool:
    """Tell whether an array is in a file."""
    return _mapping(array) is not None


def let_go(*arrays: object) -> None:
    """Take mapped arrays out of memory until they are looked at again; leave others alone."""
    for array in arrays:
        mapping = _mapping(array)
        if mapping is not None and hasattr(mapping, "madvise"):  # Windows has none
            mapping.madvise(mmap.MADV_DONTNEED)


def blocks_of(array: Array) -> Iterator[slice]:
    """Yield which rows (along the first axis) of an array to work on, a few megabytes at a time.

    Those of an array on a GPU are worked on all at once.
    """
    if is_on_device(array):
        yield slice(None)
        return
    most = max(1, _BLOCK_BYTES // max(1, 4 * math.prod(array.shape[1:])))
    for first in range(0, len(array), most):
        yield slice(first, first + most)


def _mapping(array: object) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
