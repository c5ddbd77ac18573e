"""How fields lie in memory while they are solved for: padded periodic grids, with lanes last.

A field is an array (components, *padded space, lanes). Lanes are systems that share the operator L
but neither the Hessian nor the right-hand side: small images are solved many at a time, side by
side in memory, large volumes one at a time. `anamorph.kernels.stencils` says why there is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels import smoothing, stencils
from anamorph.kernels.threads import n_threads, run_parallel, slabs

Field = NDArray[np.floating]
PerLane = NDArray[np.float64]

# Below this many numbers, handing work to another thread costs more than doing it.
_SMALLEST_SLAB = 1 << 16


@dataclass(frozen=True)
class Layout:
    """A periodic grid of `shape` voxels, in `lanes` lanes of numbers of type `dtype`."""

    shape: tuple[int, ...]
    lanes: int
    dtype: np.dtype[Any]

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """The shape of one component: (*padded space, lanes)."""
        return (*(length + 2 for length in self.shape), self.lanes)

    @cached_property
    def shifts(self) -> NDArray[np.int64]:
        """The distance in memory between neighbours along each axis."""
        return np.array([prod(self.padded[axis + 1 :]) for axis in range(len(self.shape))])

    @cached_property
    def _interior(self) -> tuple[slice, ...]:
        return (slice(None), *(slice(1, -1) for _ in self.shape))

    @cached_property
    def _interior_rows(self) -> NDArray[np.int64]:
        padded = self.padded[:-2]
        return np.arange(prod(padded)).reshape(padded)[self._interior[1:-1]].ravel()

    @cached_property
    def _interior_range(self) -> tuple[int, int]:
        first = int(self.shifts.sum())
        return first, prod(self.padded) - first

    @cached_property
    def _padded_lengths(self) -> NDArray[np.int64]:
        return np.array(self.padded)

    def zeros(self, n_components: int) -> Field:
        """Return a field of zeros."""
        return np.zeros((n_components, *self.padded), self.dtype)

    def from_batch(self, batch: Field) -> Field:
        """Return a field, padding filled, from an array (lanes, components, *space)."""
        field = self.zeros(batch.shape[1])
        field[self._interior] = np.moveaxis(batch, 0, -1)
        self.fill_padding(field)
        return field

    def to_batch(self, field: Field) -> Field:
        """Return an array (lanes, components, *space): the inverse of `from_batch`."""
        return np.moveaxis(field[self._interior], -1, 0)

    def fill_padding(self, field: Field) -> None:
        """Copy each side of the grid into the padding of the opposite side."""
        stencils.fill_padding(field.reshape(-1), self._padded_lengths)

    def over_voxels(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Run ``kernel(*arguments, start, stop)`` over all voxels, seen as one flat stretch."""
        first, last = self._interior_range
        _in_slabs(lambda a, b: kernel(*arguments, first + a, first + b), last - first, 1)

    def add_scaled(self, out: Field, factor: PerLane, x: Field) -> None:
        """Set ``out += factor * x``, with one factor per lane."""
        self._over_rows(smoothing.add_scaled, out, factor, x)

    def scale_and_add(self, out: Field, factor: PerLane, x: Field) -> None:
        """Set ``out = factor * out + x``, with one factor per lane."""
        self._over_rows(smoothing.scale_and_add, out, factor, x)

    def dot(self, a: Field, b: Field) -> PerLane:
        """Return the scalar product of two fields in every lane, summed in float64."""
        rows, length = self._interior_rows, self.shape[-1] * self.lanes
        by_rows = (a.shape[0], -1, self.padded[-2] * self.lanes)
        a, b = a.reshape(by_rows), b.reshape(by_rows)

        def sums(start: int, stop: int) -> NDArray[np.float64]:
            total = np.zeros(length)
            smoothing.sum_products(total, a, b, rows, self.lanes, start, stop)
            return total

        parts = _in_slabs(sums, rows.size, a.shape[0] * length)
        total: PerLane = np.sum(parts, axis=0).reshape(-1, self.lanes).sum(axis=0)
        return total

    def norm(self, field: Field) -> PerLane:
        """Return the Euclidean norm of a field in every lane."""
        return np.sqrt(self.dot(field, field))

    def _over_rows(
        self, kernel: Callable[..., None], out: Field, factor: PerLane, x: Field
    ) -> None:
        row = np.tile(factor.astype(self.dtype), self.padded[-2])
        out, x = out.reshape(-1, row.size), x.reshape(-1, row.size)
        _in_slabs(lambda a, b: kernel(out, row, x, a, b), out.shape[0], row.size)


def flat(field: Field) -> Field:
    """Return a field seen as (components, padded voxels and lanes)."""
    return field.reshape(field.shape[0], -1)


def _in_slabs(task: Callable[[int, int], Any], length: int, width: int) -> list[Any]:
    """Run ``task(start, stop)`` over ``range(length)``, each item of which is `width` numbers."""
    most = length * width // _SMALLEST_SLAB
    if most <= 1:
        return [task(0, length)]
    return run_parallel(lambda slab: task(*slab), slabs(length, min(most, n_threads())))
