"""The layout of fields in memory while they are solved for, and vector algebra on them.

A field is a block (components, *padded space, lanes), see `kernels.blocks`. Lanes are systems that
share the operator L but neither the Hessian nor the right-hand side: many small images are solved
at a time, next to each other in memory, and large volumes one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import kernels_for
from anamorph.kernels.blocks import BlockLayout
from anamorph.kernels.cpu import halos, smoothing
from anamorph.kernels.threads import n_threads, run_parallel, slabs

Field = NDArray[np.floating]
PerLane = NDArray[np.float64]

# Below this many numbers, handing work to another thread costs more than doing it.
_SMALLEST_SLAB = 1 << 16


@dataclass(frozen=True)
class Layout(BlockLayout):
    """Blocks of systems on one grid, one system per lane, and vector algebra in all lanes at once.

    Numbers are of type `dtype`.
    """

    dtype: np.dtype[Any]
    is_on_device: bool = False

    @property
    def _xp(self) -> Any:
        return import_module("cupy" if self.is_on_device else "numpy")

    def array(self, values: Any) -> Any:
        """Return values as an array where fields are."""
        return self._xp.asarray(values)

    def constants(self, values: Any, dtype: Any) -> Any:
        """Return numbers for kernels that hardly change; for a GPU as tuples, not as arrays."""
        array = np.asarray(values, dtype)
        return _as_tuples(array) if self.is_on_device else array

    def empty(self, n_components: int, dtype: np.dtype[np.floating]) -> Field:
        """Return a field with nothing in it yet."""
        field: Field = self._xp.empty((n_components, *self.padded, self.lanes), dtype)
        return field

    def per_lane(self, value: float, dtype: Any = np.float64) -> Any:
        """Return one number per lane, all the same."""
        return self._xp.full(self.lanes, value, dtype)

    def fill_halo(self, block: Field) -> None:
        """Copy the voxels at both ends of each axis into the halo at its other end."""
        kernels_for(block, halos.__name__).fill_halo(block.reshape(-1), block.shape)

    @cached_property
    def _row_length(self) -> int:
        """How many numbers a row of voxels has, with halo and in all lanes."""
        return self.padded[-1] * self.lanes

    @cached_property
    def _interior_rows(self) -> NDArray[np.int64]:
        padded = self.padded[:-1]
        return np.arange(prod(padded)).reshape(padded)[self.interior[1:-1]].ravel()

    def zeros(self, n_components: int) -> Field:
        """Return a field of zeros."""
        field: Field = self._xp.zeros((n_components, *self.padded, self.lanes), self.dtype)
        return field

    def over_voxels(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Run ``kernel(*arguments, start, stop)`` over all voxels as one flat stretch."""
        first, last = self.run
        if self.is_on_device:
            kernel(*arguments, first, last)
            return
        _run_in_slabs(lambda a, b: kernel(*arguments, first + a, first + b), last - first, 1)

    def add_scaled(self, out: Field, factor: PerLane, x: Field) -> None:
        """Set ``out += factor * x``, with one factor per lane."""
        self._over_rows("add_scaled", out, factor, x)

    def scale_and_add(self, out: Field, factor: PerLane, x: Field) -> None:
        """Set ``out = factor * out + x``, with one factor per lane."""
        self._over_rows("scale_and_add", out, factor, x)

    def dot(self, a: Field, b: Field) -> PerLane:
        """Return the scalar product of two fields in every lane, summed in float64."""
        if self.is_on_device:
            kernels = kernels_for(a, smoothing.__name__)
            on_device: PerLane = kernels.dot_per_lane(
                by_component(a), by_component(b), self.padded, self.lanes
            )
            return on_device
        rows, length = self._interior_rows, self.space[-1] * self.lanes
        by_rows = (a.shape[0], -1, self._row_length)
        a, b = a.reshape(by_rows), b.reshape(by_rows)

        def sums(start: int, stop: int) -> NDArray[np.float64]:
            total = np.zeros(length)
            smoothing.sum_products(total, a, b, rows, self.lanes, start, stop)
            return total

        parts = _run_in_slabs(sums, rows.size, a.shape[0] * length)
        total: PerLane = np.sum(parts, axis=0).reshape(-1, self.lanes).sum(axis=0)
        return total

    def norm(self, field: Field) -> PerLane:
        """Return the Euclidean norm of a field in every lane."""
        return np.sqrt(self.dot(field, field))

    def _over_rows(self, name: str, out: Field, factor: PerLane, x: Field) -> None:
        kernel = getattr(kernels_for(out, smoothing.__name__), name)
        row = np.tile(factor.astype(self.dtype), self.padded[-1])
        out, x = out.reshape(-1, row.size), x.reshape(-1, row.size)
        if self.is_on_device:
            kernel(out, row, x, 0, out.shape[0])
            return
        _run_in_slabs(lambda a, b: kernel(out, row, x, a, b), out.shape[0], row.size)


def by_component(field: Field) -> Field:
    """Return a field as a view of shape (components, padded voxels and lanes)."""
    return field.reshape(field.shape[0], -1)


def _as_tuples(array: NDArray[Any]) -> Any:
    """Return an array as tuples of tuples of numbers."""
    if array.ndim:
        return tuple(_as_tuples(row) for row in array)
    return int(array) if array.dtype.kind == "i" else array[()]


def _run_in_slabs(task: Callable[[int, int], Any], length: int, width: int) -> list[Any]:
    """Run ``task(start, stop)`` over ``range(length)``; each item is `width` numbers."""
    most = length * width // _SMALLEST_SLAB
    if most <= 1:
        return [task(0, length)]
    return run_parallel(lambda slab: task(*slab), slabs(length, min(most, n_threads())))
