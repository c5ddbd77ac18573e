"""How systems (H_k + weight_k L) x_k = g_k lie in memory: their checks, blocks and vector algebra.

A field is a block (components, *padded space, lanes), see `kernels.blocks`. Lanes are systems that
share the operator L but neither the Hessian nor the right-hand side: many small images are solved
at a time, next to each other in memory, and large volumes one at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.devices import free_bytes, is_on_device, kernels_for
from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.geometry.fields import as_float
from anamorph.kernels.blocks import Blocks
from anamorph.kernels.cpu import smoothing, stencils
from anamorph.kernels.threads import n_threads, run_parallel, slabs

if TYPE_CHECKING:
    from anamorph.solvers.system_operator import Regulariser

Field = Array
PerLane = Float64Array

# Below this many numbers, handing work to another thread costs more than doing it.
_SMALLEST_SLAB = 1 << 16
# A block of systems has at most so many voxels, which bounds memory...
_LARGEST_BLOCK = 1 << 17
# ... and at least so many if there are: below, calling the kernels costs more than running them.
_SMALLEST_BLOCK = 1 << 13
# On a GPU as many as possible, within this share of its memory (as a divisor): launching kernels
# takes the same time for one system as for many.
_SHARE_OF_DEVICE = 4
_BYTES_PER_VOXEL = 256
_MOST_NUMBERS = 1 << 30  # of Hessians on a GPU, whose kernels count the padded ones in 32 bits
# Systems of fewer numbers are solved sooner by the processor than by a GPU, whose kernels would
# take longer to be launched than to run.
_SMALLEST_ON_DEVICE = 1 << 18
# Negative entries below this, relative to the largest, are rounding errors of the caller.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class FieldBlocks(Blocks):
    """Blocks of systems on one grid, one system per lane, and vector algebra in all lanes at once.

    Numbers are of type `dtype`.
    """

    dtype: np.dtype[Any]
    is_on_device: bool = False

    @property
    def _xp(self) -> Any:
        return sys.modules["cupy"] if self.is_on_device else np

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
        kernels_for(block, stencils.__name__).fill_halo(block.reshape(-1), block.shape)

    @cached_property
    def _row_length(self) -> int:
        """How many numbers a row of voxels has, with halo and in all lanes."""
        return self.padded[-1] * self.lanes

    @cached_property
    def _interior_rows(self) -> IntArray:
        padded = self.padded[:-1]
        return np.arange(prod(padded)).reshape(padded)[self.interior[1:-1]].ravel()

    def zeros(self, n_components: int) -> Field:
        """Return a field of zeros."""
        field: Field = self._xp.zeros((n_components, *self.padded, self.lanes), self.dtype)
        return field

    def over_voxels(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Run ``kernel(*arguments, start, stop)`` over all voxels as one flat stretch."""
        first, last = self.run
        self._run_in_slabs(lambda a, b: kernel(*arguments, first + a, first + b), last - first, 1)

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

        def sums(start: int, stop: int) -> Float64Array:
            total = np.zeros(length)
            smoothing.sum_products(total, a, b, rows, self.lanes, start, stop)
            return total

        parts = self._run_in_slabs(sums, rows.size, a.shape[0] * length)
        total: PerLane = np.sum(parts, axis=0).reshape(-1, self.lanes).sum(axis=0)
        return total

    def norm(self, field: Field) -> PerLane:
        """Return the Euclidean norm of a field in every lane."""
        return np.sqrt(self.dot(field, field))

    def _over_rows(self, name: str, out: Field, factor: PerLane, x: Field) -> None:
        kernel = getattr(kernels_for(out, smoothing.__name__), name)
        row = np.tile(factor.astype(self.dtype), self.padded[-1])
        out, x = out.reshape(-1, row.size), x.reshape(-1, row.size)
        self._run_in_slabs(lambda a, b: kernel(out, row, x, a, b), out.shape[0], row.size)

    def _run_in_slabs(self, task: Callable[[int, int], Any], length: int, width: int) -> list[Any]:
        """Run ``task(start, stop)`` over ``range(length)``; each item is `width` numbers."""
        most = length * width // _SMALLEST_SLAB
        if self.is_on_device or most <= 1:
            return [task(0, length)]
        return run_parallel(lambda slab: task(*slab), slabs(length, min(most, n_threads())))


def by_component(field: Field) -> Field:
    """Return a field as a view of shape (components, padded voxels and lanes)."""
    return field.reshape(field.shape[0], -1)


def _as_tuples(array: NDArray[Any]) -> Any:
    """Return an array as tuples of tuples of numbers."""
    if array.ndim:
        return tuple(_as_tuples(row) for row in array)
    return int(array) if array.dtype.kind == "i" else array[()]


@dataclass(frozen=True)
class Systems:
    """Checked arrays of one type, leading axes merged into k.

    Attributes
    ----------
    hessian : ndarray, shape (k, P, *space)
    gradient : ndarray, shape (k, C, *space)
    start : ndarray, shape (k, C, *space), or None for 0
    weight : ndarray, shape (k,)
    """

    hessian: Field
    gradient: Field
    start: Field | None
    weight: Float64Array

    def split_into_blocks(self) -> list[slice]:
        """Return which systems to solve together."""
        k = self.gradient.shape[0]
        n_voxels = k * prod(self.gradient.shape[2:])
        if is_on_device(self.gradient):
            most = free_bytes() // _SHARE_OF_DEVICE // _BYTES_PER_VOXEL
            most = min(most, _MOST_NUMBERS // self.hessian.shape[1])
            return [slice(*slab) for slab in slabs(k, -(-n_voxels // max(1, most)))]
        count = max(n_voxels // _LARGEST_BLOCK, min(n_threads(), n_voxels // _SMALLEST_BLOCK))
        return [slice(*slab) for slab in slabs(k, count)] if k else []


def is_sooner_on_host(fields: Array) -> bool:
    """Tell whether systems are on a GPU, and so small that a processor solves them sooner."""
    return is_on_device(fields) and fields.size < _SMALLEST_ON_DEVICE


def check_systems(
    hessian: ArrayLike,
    gradient: Field,
    regulariser: Regulariser,
    weight: ArrayLike,
    start: ArrayLike | None,
) -> Systems:
    """Return the systems, or raise a ValueError that says what is wrong with them.

    The last axes of `gradient` have been checked: (..., C, *space).
    """
    n_dims, c = len(regulariser.voxel_size), regulariser.n_components
    leading, space = gradient.shape[: -n_dims - 1], gradient.shape[-n_dims:]
    if 0 in (c, *space):
        raise ValueError(f"gradient must not be empty, got shape {gradient.shape}")
    matrices = as_float(hessian, "hessian")
    accepted = [(*leading, p, *space) for p in sorted({c, c * (c + 1) // 2})]
    if matrices.shape not in accepted:
        shapes = " or ".join(map(str, accepted))
        raise ValueError(
            f"hessian must have shape {shapes} to match the gradient, got {matrices.shape}"
        )
    dtype = np.result_type(matrices, gradient)

    def merged(array: Field, name: str) -> Field:
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity in it")
        return array.reshape(-1, *array.shape[-n_dims - 1 :]).astype(dtype, copy=False)

    systems = Systems(
        merged(matrices, "hessian"),
        merged(gradient, "gradient"),
        None if start is None else merged(_check_start(start, gradient), "start"),
        _check_weight(weight, leading),
    )
    _check_definite(systems.hessian, regulariser)
    return systems


def _check_start(start: ArrayLike, gradient: Field) -> Field:
    array = as_float(start, "start")
    if array.shape != gradient.shape:
        raise ValueError(
            f"start must have the shape of the gradient, {gradient.shape}, got {array.shape}"
        )
    return array


def _check_weight(weight: ArrayLike, leading: tuple[int, ...]) -> Float64Array:
    weights = np.asarray(weight, dtype=np.float64)
    if weights.shape not in ((), leading):
        raise ValueError(
            f"weight must be a number or have the leading shape {leading} of the gradient, "
            f"got shape {weights.shape}"
        )
    if not np.all(np.isfinite(weights) & (weights > 0)):
        raise ValueError(f"weight must be positive and finite, got {weight!r}")
    return np.broadcast_to(weights, leading).reshape(-1)


def _check_definite(hessian: Field, regulariser: Regulariser) -> None:
    diagonal = hessian[:, : regulariser.n_components]
    # Row by row first: a GPU is slow to look through everything for one number.
    largest, smallest = diagonal.max(axis=-1), diagonal.min(axis=-1)
    if diagonal.size and smallest.min() < -_ROUNDING * largest.max():
        raise ValueError(
            "hessian must be positive semi-definite at every voxel, "
            f"got {smallest.min():.3g} on its diagonal"
        )
    is_zero = ~largest.any(axis=tuple(range(1, largest.ndim)))
    if regulariser.penalty[0] == 0 and is_zero.any():
        raise ValueError(
            "the system is singular: with w0 = 0 in the penalty, hessian must not be zero "
            "everywhere; give w0 a positive value"
        )
