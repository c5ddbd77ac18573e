"""The operator H + L of a system on one grid: its product with a field, its blocks, its matrix.

The penalty L is that of `anamorph.geometry.operators`. On a coarse grid differences are divided by
the coarse spacing H_i, but velocities stay in voxels of the finest grid, of size h_i: component
(i, j) of the symbol for spacing H is multiplied by (h_i h_j) / (H_i H_j).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anamorph.arrays.devices import kernels_for, to_host
from anamorph.arrays.typing import Float64Array
from anamorph.geometry.operators import (
    VELOCITY_WEIGHTS,
    angular_frequencies,
    field_symbol,
    packed_pairs,
    velocity_symbol,
)
from anamorph.solvers.systems import Field, FieldBlocks, PerLane, by_component

# Along one axis the symbol is a trigonometric polynomial of degree 2: its mean follows from a few
# frequencies, and its largest value is seen closely enough.
_FREQUENCIES = 8


@dataclass(frozen=True)
class Regulariser:
    """L for any grid: the weights of the penalty (3 or 5), and the finest voxel size."""

    penalty: tuple[float, ...]
    voxel_size: tuple[float, ...]
    n_components: int

    @property
    def is_for_velocities(self) -> bool:
        """Whether components are those of a velocity, in voxels and coupled by w3 and w4."""
        return len(self.penalty) == VELOCITY_WEIGHTS

    def units(self, spacing: Sequence[float]) -> Float64Array:
        """Return h_i / H_i for each component of a velocity."""
        return np.divide(self.voxel_size, spacing)

    def symbol(self, shape: Sequence[int], spacing: Sequence[float]) -> Float64Array:
        """Return the symbol of L as matrices: (components, components, *shape)."""
        n, frequencies = self.n_components, angular_frequencies(shape, half=False)
        if not self.is_for_velocities:
            return np.multiply.outer(np.eye(n), field_symbol(self.penalty, frequencies, spacing))
        packed = velocity_symbol(self.penalty, frequencies, spacing)
        units = self.units(spacing)
        matrix = np.empty((n, n, *packed.shape[1:]))
        for component, (i, j) in zip(packed, packed_pairs(n), strict=True):
            matrix[i, j] = matrix[j, i] = units[i] * units[j] * component
        return matrix


@lru_cache(maxsize=64)
def evaluate_diagonal(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> Float64Array:
    """Return the diagonal of L, one number per component: the mean of its symbol."""
    symbol = _symbol_at_few_frequencies(regulariser, shape, spacing)
    return np.diagonal(symbol.mean(axis=tuple(range(2, symbol.ndim)))).copy()


@lru_cache(maxsize=64)
def bound_rough_spectrum(
    regulariser: Regulariser,
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    coarse_shape: tuple[int, ...],
) -> tuple[float, float]:
    """Return bounds on the eigenvalues of D^-1 L for fields that a coarser grid cannot show.

    D is the diagonal of L. The upper bound holds for all fields, and is at least 1.
    """
    symbol = _symbol_at_few_frequencies(regulariser, shape, spacing)
    root = np.sqrt(evaluate_diagonal(regulariser, shape, spacing)).reshape(-1, *(1 for _ in shape))
    scaled = symbol / root / root[:, None]
    frequencies = angular_frequencies(symbol.shape[2:], half=False)
    is_rough = np.zeros(symbol.shape[2:], np.bool_)
    for k, length, coarse_length in zip(frequencies, shape, coarse_shape, strict=True):
        is_rough |= (length != coarse_length) & (abs(k) >= np.pi / 2)
    smallest = np.linalg.eigvalsh(np.moveaxis(scaled[:, :, is_rough], -1, 0)).min()
    return float(smallest), max(1.0, float(abs(scaled).sum(axis=0).max()))


@lru_cache(maxsize=64)
def build_matrix(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> Float64Array:
    """Return L as a matrix: (components, voxels, components, voxels)."""
    symbol = regulariser.symbol(shape, spacing)
    response = np.fft.ifftn(symbol, axes=range(2, symbol.ndim)).real
    voxels = np.indices(shape).reshape(len(shape), -1)
    apart = (voxels[:, :, None] - voxels[:, None, :]) % np.reshape(shape, (-1, 1, 1))
    return np.moveaxis(response[(slice(None), slice(None), *apart)], 1, 2)


def _symbol_at_few_frequencies(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> Float64Array:
    return regulariser.symbol([min(length, _FREQUENCIES) for length in shape], spacing)


class SystemOperator:
    """H + L on one grid, in all lanes.

    Parameters
    ----------
    blocks : FieldBlocks
        The grid.
    spacing : d numbers
        Its spacing along each axis, in the unit of the voxel size.
    regulariser : Regulariser
        L.
    hessian : (C or C(C+1)/2, *padded space, lanes)
        H, diagonal or packed, its halo filled.
    """

    def __init__(
        self,
        blocks: FieldBlocks,
        spacing: tuple[float, ...],
        regulariser: Regulariser,
        hessian: Field,
    ) -> None:
        self.blocks, self.spacing, self.regulariser = blocks, spacing, regulariser
        self.hessian = hessian
        self._grid = regulariser, blocks.space, spacing
        self._shifts = blocks.constants(blocks.shifts, np.int64)
        self._bent = blocks.zeros(regulariser.n_components)
        self._set_coefficients()

    def _set_coefficients(self) -> None:
        regulariser, dtype = self.regulariser, self.blocks.dtype
        w0, w1, w2, w3, w4 = (*regulariser.penalty, 0.0, 0.0)[:VELOCITY_WEIGHTS]
        scale, elastic = np.ones(regulariser.n_components), np.zeros((regulariser.n_components, 0))
        if regulariser.is_for_velocities:
            units = regulariser.units(self.spacing)
            scale = np.asarray(regulariser.voxel_size) ** 2
            elastic = (w3 + w4) * np.outer(units, units)
            # Off the diagonal it multiplies `mixed_difference`: four times the mixed derivative,
            # which L subtracts.
            elastic[~np.eye(len(units), dtype=bool)] *= -0.25
        inverse_squares = np.asarray(self.spacing) ** -2.0
        constants = self.blocks.constants
        self._first = constants([w1 + w3], dtype)
        self._second = constants(w2 * inverse_squares, dtype)
        self._absolute = constants(w0 * scale, dtype)
        self._laplacian = constants(np.outer(scale, inverse_squares), dtype)
        self._elastic = constants(elastic, dtype)

    def apply(self, out: Field, x: Field) -> None:
        """Write (H + L) x; `x` must have its halo filled."""
        self._product(out, x, subtract=False)

    def subtract(self, out: Field, x: Field) -> None:
        """Subtract (H + L) x from `out`; `x` must have its halo filled."""
        self._product(out, x, subtract=True)

    def _product(self, out: Field, x: Field, *, subtract: bool) -> None:
        blocks, shifts, bent, field = (
            self.blocks,
            self._shifts,
            by_component(self._bent),
            by_component(x),
        )
        kernels = kernels_for(x, "anamorph.kernels.cpu.stencils")
        blocks.over_voxels(kernels.bend, bent, field, shifts, self._first, self._second)
        blocks.fill_halo(self._bent)
        coefficients = shifts, self._absolute, self._laplacian, self._elastic
        fields = by_component(out), field, bent, by_component(self.hessian)
        blocks.over_voxels(kernels.apply_operator, *fields, *coefficients, subtract)

    def inverse_blocks(self) -> Field:
        """Return the inverse of D, packed like H; D is H plus the diagonal of L, at every voxel."""
        inverse = np.empty_like(self.hessian)
        kernels = kernels_for(inverse, "anamorph.kernels.cpu.smoothing")
        kernels.invert_blocks(
            by_component(inverse), by_component(self.hessian), evaluate_diagonal(*self._grid)
        )
        return inverse

    def rounding(self, x: Field) -> PerLane:
        """Return the norm of the residual that rounding `x` to its number type may cause.

        It exceeds any tolerance when x is almost constant and only a small w0 holds it.
        """
        scale: float = np.finfo(self.blocks.dtype).eps * evaluate_diagonal(*self._grid).max()
        return scale * self.blocks.norm(x)

    def dense(self) -> Float64Array:
        """Return H + L as matrices in float64: (lanes, unknowns, unknowns)."""
        lanes, penalty = self.blocks.lanes, build_matrix(*self._grid)
        matrix = np.broadcast_to(penalty, (lanes, *penalty.shape)).copy()
        hessian = to_host(self.blocks.unload(self.hessian)).reshape(lanes, len(self.hessian), -1)
        voxel = np.arange(hessian.shape[2])
        for packed, (i, j) in enumerate(packed_pairs(len(penalty))[: len(self.hessian)]):
            for row, column in {(i, j), (j, i)}:
                matrix[:, row, voxel, column, voxel] += hessian[:, packed]
        unknowns = len(penalty) * len(voxel)
        return matrix.reshape(lanes, unknowns, unknowns)
