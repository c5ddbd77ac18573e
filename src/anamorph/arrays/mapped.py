"""Arrays in files without a name, mapped into memory a block at a time.

A process that works on more than it has memory for keeps its results in such arrays, works on
them block by block, and releases the memory of each block: the numbers stay in the file, and the
file goes with the last array that shows it.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from typing import Any

import numpy as np

from anamorph.arrays.devices import is_on_device
from anamorph.arrays.typing import Array, Float32Array

_BLOCK_BYTES = 2**26


def empty_mapped(shape: tuple[int, ...]) -> Float32Array:
    """Return a float32 array in a temporary file, which has no name."""
    with tempfile.TemporaryFile() as file:  # the mapping outlives it
        return np.asarray(np.memmap(file, np.float32, "w+", shape=shape))


def is_mapped(array: object) -> bool:
    """Tell whether an array is in a file."""
    return _mapping(array) is not None


def let_go(*arrays: object) -> None:
    """Release the memory of mapped arrays until they are read again; leave other arrays alone."""
    for array in arrays:
        mapping = _mapping(array)
        if mapping is not None and hasattr(mapping, "madvise"):  # Windows has none
            mapping.madvise(mmap.MADV_DONTNEED)


def blocks_of(array: Array) -> list[slice]:
    """Return which rows (along the first axis) of an array to work on, some megabytes at a time.

    An array on a GPU is worked on all at once.
    """
    if is_on_device(array):
        return [slice(None)]
    most = max(1, _BLOCK_BYTES // max(1, 4 * math.prod(array.shape[1:])))
    return [slice(first, first + most) for first in range(0, len(array), most)]


def _mapping(array: object) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
