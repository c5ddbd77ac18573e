"""Sums that are too large for memory: in a file, some columns of a basis at a time.

Nothing is mapped while it is added up, so that such a sum takes no memory beyond a block.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Sums with more bytes than this (in float64) are worth a file.
MOST_BYTES_IN_MEMORY = 256 * 2**20
_BLOCK_BYTES = 64 * 2**20


def is_large(n_numbers: int) -> bool:
    """Tell whether a sum of so many numbers is worth a file."""
    return 8 * n_numbers > MOST_BYTES_IN_MEMORY


class SumOnDisk:
    """A sum of fields, weighted for each column, in a file of float32.

    Parameters
    ----------
    path : Path
        Replaced if it exists.
    shape : tuple of int
        (columns, numbers per voxel, *space).
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._path, self._shape = path, shape
        self._row = math.prod(shape[1:])
        path.unlink(missing_ok=True)  # whoever still reads the old one keeps it
        with open(path, "wb") as file:
            file.truncate(4 * math.prod(shape))

    def add_products(self, weights: NDArray[np.floating], fields: NDArray[np.floating]) -> None:
        """Add sum_n weights_nk fields_n to every column k.

        Parameters
        ----------
        weights : (N, columns)
        fields : (N, numbers per voxel, *space)
        """
        flat = fields.reshape(len(fields), -1)
        factors = np.ascontiguousarray(weights.T, fields.dtype)
        step = max(1, _BLOCK_BYTES // (4 * self._row))
        with open(self._path, "r+b") as file:
            for first in range(0, len(factors), step):
                some = factors[first : first + step]
                file.seek(4 * self._row * first)
                block = np.fromfile(file, np.float32, len(some) * self._row)
                block = block.reshape(len(some), self._row)
                block += some @ flat
                file.seek(4 * self._row * first)
                block.tofile(file)

    def array(self) -> NDArray[np.floating]:
        """Return the sum, mapped: parts of it are read when they are looked at."""
        mapped: NDArray[np.floating] = np.memmap(self._path, np.float32, "r", shape=self._shape)
        return mapped
