"""Sums of fields over images, one for each column of a basis: in memory, on a GPU, or on disk.

Sums that are too large for memory go to disk. Nothing is mapped while they are added up: they
take no memory beyond a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.devices import beside, is_on_device
from anamorph.arrays.typing import Array, Float64Array
from anamorph.kernels.threads import n_threads, run_parallel, slabs

#: Sums with more bytes than this (in float64) are worth a file.
MOST_BYTES_IN_MEMORY = 256 * 2**20
_BLOCK_BYTES = 64 * 2**20
_COLUMNS_PER_PRODUCT = 2**14
_PRODUCT_BYTES_ON_DEVICE = 2**30


def is_large(n_numbers: int) -> bool:
    """Tell whether a sum of so many numbers is worth a file."""
    return 8 * n_numbers > MOST_BYTES_IN_MEMORY


@dataclass(frozen=True)
class SumPlace:
    """Where sums are added up.

    Attributes
    ----------
    namespace : module
        numpy, or cupy where the fields to be added are on a GPU.
    scratch : Path, optional
        Folder for sums that are too large for memory; by default all are in memory.
    has_room_for_bases : bool
        Whether sums for all columns of a basis stay on the GPU, if the fields are there.
    """

    namespace: Any
    scratch: Path | None = None
    has_room_for_bases: bool = True

    def new_sum(self, name: str, shape: tuple[int, ...]) -> SumInMemory | SumOnDisk:
        """Return a sum that is zero so far.

        Parameters
        ----------
        name : str
            Of its file, which replaces the last one of that name.
        shape : tuple of int
            (columns, numbers per voxel, *space).
        """
        if self.scratch is not None and self.namespace is np and is_large(math.prod(shape)):
            return SumOnDisk(self.scratch / f"{name}.float32", shape)
        is_of_a_basis = shape[0] > 1
        leaves_gpu = is_of_a_basis and not self.has_room_for_bases
        return SumInMemory(np if leaves_gpu else self.namespace, shape)


class SumInMemory:
    """A sum of fields, weighted for each column, in float64.

    Parameters
    ----------
    namespace : module
        numpy, or cupy for a sum that is on a GPU.
    shape : tuple of int
        (columns, numbers per voxel, *space).
    """

    def __init__(self, namespace: Any, shape: tuple[int, ...]) -> None:
        self._total: Float64Array = namespace.zeros(shape)

    def add_products(self, weights: Float64Array, fields: Array) -> None:
        """Add sum_n weights_nk fields_n to every column k, some voxels at a time.

        Parameters
        ----------
        weights : (N, columns)
        fields : (N, numbers per voxel, *space)
        """
        flat_total = self._total.reshape(len(self._total), -1)
        flat_fields = fields.reshape(len(fields), -1)
        if is_on_device(fields):
            on_device = weights.T.astype(fields.dtype)
            most = max(1, _PRODUCT_BYTES_ON_DEVICE // (4 * len(flat_total)))
            for first in range(0, flat_fields.shape[1], most):
                some = slice(first, first + most)
                flat_total[:, some] += beside(flat_total, on_device @ flat_fields[:, some])
            return
        factors = np.ascontiguousarray(weights.T, fields.dtype)

        def add(bounds: tuple[int, int]) -> None:
            columns = slice(*bounds)
            flat_total[:, columns] += factors @ flat_fields[:, columns]

        n_columns = flat_fields.shape[1]
        run_parallel(add, slabs(n_columns, max(n_threads(), n_columns // _COLUMNS_PER_PRODUCT)))

    def array(self) -> Float64Array:
        """Return the sum."""
        return self._total


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

    def add_products(self, weights: Float64Array, fields: Array) -> None:
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

    def array(self) -> Array:
        """Return the sum, mapped: its parts are read when they are used."""
        return np.memmap(self._path, np.float32, "r", shape=self._shape)
