"""The operator H + L on one grid: its product with a field, its diagonal blocks, its bounds.

L is that of `anamorph.geometry.penalties`, on grids of any spacing. On a coarse grid differences
are divided by the coarse spacing H_i, but velocities stay in voxels of the finest grid, of size
h_i: component (i, j) of the symbol for spacing H is multiplied by (h_i h_j) / (H_i H_j).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anamorph.geometry.penalties import (
    VELOCITY_WEIGHTS,
    angular_frequencies,
    field_symbol,
    packed_pairs,
    velocity_symbol,
)
from anamorph.kernels.smoothing import invert_blocks
from anamorph.kernels.stencils import apply_operator, bend
from anamorph.solvers.layout import Field, Layout, PerLane, flat

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

    def units(self, spacing: Sequence[float]) -> NDArray[np.float64]:
        """Return h_i / H_i for each component of a velocity."""
        return np.asarray(self.voxel_size) / np.asarray(spacing)

    def symbol(self, shape: Sequence[int], spacing: Sequence[float]) -> NDArray[np.float64]:
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


class Operator:
    """H + L on one grid, in all lanes.

    Parameters
    ----------
    layout
        The grid.
    spacing
        Its spacing along each axis, in the unit of the voxel size.
    regulariser
        L.
    hessian
        H, packed (C or C(C+1)/2 components), its padding filled.
    """

    def __init__(
        self, layout: Layout, spacing: tuple[float, ...], regulariser: Regulariser, hessian: Field
    ) -> None:
        self.layout, self.spacing, self.regulariser = layout, spacing, regulariser
        self.hessian = hessian
        self.pairs = np.array(packed_pairs(regulariser.n_components)[: hessian.shape[0]])
        self._bent = layout.zeros(regulariser.n_components)
        self._set_coefficients()

    def _set_coefficients(self) -> None:
        regulariser, dtype = self.regulariser, self.layout.dtype
        w0, w1, w2, w3, w4 = (*regulariser.penalty, 0.0, 0.0)[:VELOCITY_WEIGHTS]
        scale, elastic = np.ones(regulariser.n_components), np.zeros((regulariser.n_components, 0))
        if regulariser.is_for_velocities:
            units = regulariser.units(self.spacing)
            scale = np.asarray(regulariser.voxel_size) ** 2
            elastic = (w3 + w4) * np.outer(units, units)
        inverse_squares = np.asarray(self.spacing) ** -2.0
        self._first = np.array([w1 + w3], dtype)
        self._second = (w2 * inverse_squares).astype(dtype)
        self._absolute = (w0 * scale).astype(dtype)
        self._laplacian = np.outer(scale, inverse_squares).astype(dtype)
        self._elastic = elastic.astype(dtype)

    def apply(self, out: Field, x: Field) -> None:
        """Write (H + L) x; `x` must have its padding filled."""
        self._product(out, x, subtract=False)

    def subtract(self, out: Field, x: Field) -> None:
        """Subtract (H + L) x from `out`; `x` must have its padding filled."""
        self._product(out, x, subtract=True)

    def _product(self, out: Field, x: Field, *, subtract: bool) -> None:
        layout, shifts, bent, field = self.layout, self.layout.shifts, flat(self._bent), flat(x)
        layout.over_voxels(bend, bent, field, shifts, self._first, self._second)
        layout.fill_padding(self._bent)
        hessian = flat(self.hessian), self.pairs
        coefficients = self._absolute, self._laplacian, self._elastic
        layout.over_voxels(
            apply_operator, flat(out), field, bent, *hessian, shifts, *coefficients, subtract
        )

    def inverse_blocks(self) -> tuple[Field, float]:
        """Return D^-1, packed like H, and a bound on the eigenvalues of D^-1 (H + L).

        D is H plus the diagonal of L, a matrix per voxel. H only draws the eigenvalues towards 1,
        so that the bound follows from L alone: from the row sums of its symbol.
        """
        inverse = np.empty_like(self.hessian)
        invert_blocks(flat(inverse), flat(self.hessian), self.pairs, self._diagonal)
        root = np.sqrt(self._diagonal).reshape(-1, *(1 for _ in self.layout.shape))
        bound = (abs(self._symbol()) / root / root[:, None]).sum(axis=0).max()
        return inverse, max(1.0, float(bound))

    def rounding(self, x: Field, right_hand_side: Field) -> PerLane:
        """Return the residual, relative to g, that rounding `x` to its number type may cause.

        It is large when x is almost constant and only a small w0 holds it.
        """
        epsilon = np.finfo(self.layout.dtype).eps * self._diagonal.max()
        scale = self.layout.norm(right_hand_side)
        return np.divide(
            epsilon * self.layout.norm(x), scale, out=np.zeros_like(scale), where=scale > 0
        )

    @cached_property
    def _diagonal(self) -> NDArray[np.float64]:
        """The diagonal of L, one number per component: the mean of its symbol."""
        symbol = self._symbol()
        return np.diagonal(symbol.mean(axis=tuple(range(2, symbol.ndim)))).copy()

    def _symbol(self) -> NDArray[np.float64]:
        shape = [min(length, _FREQUENCIES) for length in self.layout.shape]
        return self.regulariser.symbol(shape, self.spacing)

    def dense(self) -> NDArray[np.float64]:
        """Return H + L as matrices in float64: (lanes, unknowns, unknowns)."""
        shape, lanes = self.layout.shape, self.layout.lanes
        symbol = self.regulariser.symbol(shape, self.spacing)
        response = np.fft.ifftn(symbol, axes=range(2, symbol.ndim)).real
        voxels = np.indices(shape).reshape(len(shape), -1)
        apart = (voxels[:, :, None] - voxels[:, None, :]) % np.reshape(shape, (-1, 1, 1))
        penalty = response[(slice(None), slice(None), *apart)]
        matrix = np.broadcast_to(penalty, (lanes, *penalty.shape)).copy()
        hessian = self.layout.to_batch(self.hessian).reshape(lanes, len(self.pairs), -1)
        voxel = np.arange(voxels.shape[1])
        for packed, (i, j) in enumerate(self.pairs):
            for row, column in {(i, j), (j, i)}:
                matrix[:, row, column, voxel, voxel] += hessian[:, packed]
        unknowns = len(penalty) * len(voxel)
        return np.moveaxis(matrix, 2, 3).reshape(lanes, unknowns, unknowns)
