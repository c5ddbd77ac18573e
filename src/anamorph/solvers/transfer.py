"""Transfer between grids: fields are interpolated on the finer one, averaged on the coarser one.

Voxels of both grids are centred on the same periodic domain. Interpolation is linear along each
axis in turn, for any ratio of lengths; averaging is its transpose, divided by the ratio.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import kernels_for
from anamorph.solvers.layout import Field, Layout

_Neighbours = tuple[NDArray[np.int64], NDArray[np.int64], Field]


def prolong(field: Field, fine: Layout) -> Field:
    """Return a field of a coarser grid, interpolated on grid `fine`."""
    for axis in reversed(range(len(fine.space))):
        n_fine, n_coarse = fine.space[axis], field.shape[axis + 1] - 2
        if n_fine != n_coarse:
            result = np.empty_like(field, shape=_resized(field, axis, n_fine))
            neighbours = _find_coarse_neighbours(n_fine, n_coarse, field.dtype, fine.is_on_device)
            kernels = kernels_for(field, "anamorph.kernels.cpu.stencils")
            kernels.prolong_axis(_seen_along(result, axis), _seen_along(field, axis), *neighbours)
            field = result
    fine.fill_halo(field)
    return field


def restrict(field: Field, coarse: Layout) -> Field:
    """Return a field of a finer grid, averaged on grid `coarse`."""
    for axis in range(len(coarse.space)):
        n_fine, n_coarse = field.shape[axis + 1] - 2, coarse.space[axis]
        if n_fine != n_coarse:
            result = np.empty_like(field, shape=_resized(field, axis, n_coarse))
            neighbours = _find_coarse_neighbours(n_fine, n_coarse, field.dtype, coarse.is_on_device)
            kernels = kernels_for(field, "anamorph.kernels.cpu.stencils")
            kernels.restrict_axis(_seen_along(result, axis), _seen_along(field, axis), *neighbours)
            field = result
    coarse.fill_halo(field)
    return field


@cache
def _find_coarse_neighbours(
    n_fine: int, n_coarse: int, dtype: np.dtype[Any], is_on_device: bool
) -> _Neighbours:
    """Return the coarse voxels left and right of each fine one, and where it lies between them."""
    position = (np.arange(n_fine) + 0.5) * n_coarse / n_fine - 0.5
    left = np.floor(position).astype(np.int64)
    neighbours = left % n_coarse, (left + 1) % n_coarse, (position - left).astype(dtype)
    if is_on_device:
        return cast(_Neighbours, tuple(map(import_module("cupy").asarray, neighbours)))
    return neighbours


def _resized(field: Field, axis: int, length: int) -> tuple[int, ...]:
    return (*field.shape[: axis + 1], length + 2, *field.shape[axis + 2 :])


def _seen_along(field: Field, axis: int) -> Field:
    """Return a field seen as (outer, padded axis, inner)."""
    return field.reshape(prod(field.shape[: axis + 1]), field.shape[axis + 1], -1)
