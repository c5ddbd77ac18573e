"""The operator H + L of a system on one grid: its product with a field, its blocks, its matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import kernels_for, to_host
from anamorph.geometry.penalties import VELOCITY_WEIGHTS, packed_pairs
from anamorph.solvers.layout import Field, Layout, PerLane, by_component
from anamorph.solvers.regulariser import Regulariser, build_matrix, evaluate_diagonal


class SystemOperator:
    """H + L on one grid, in all lanes.

    Parameters
    ----------
    layout : Layout
        The grid.
    spacing : d numbers
        Its spacing along each axis, in the unit of the voxel size.
    regulariser : Regulariser
        L.
    hessian : (C or C(C+1)/2, *padded space, lanes)
        H, diagonal or packed, its halo filled.
    """

    def __init__(
        self, layout: Layout, spacing: tuple[float, ...], regulariser: Regulariser, hessian: Field
    ) -> None:
        self.layout, self.spacing, self.regulariser = layout, spacing, regulariser
        self.hessian = hessian
        self._grid = regulariser, layout.space, spacing
        self._shifts = layout.constants(layout.shifts, np.int64)
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
            # Off the diagonal it multiplies `mixed_difference`: four times the mixed derivative,
            # which L subtracts.
            elastic[~np.eye(len(units), dtype=bool)] *= -0.25
        inverse_squares = np.asarray(self.spacing) ** -2.0
        constants = self.layout.constants
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
        layout, shifts, bent, field = (
            self.layout,
            self._shifts,
            by_component(self._bent),
            by_component(x),
        )
        kernels = kernels_for(x, "anamorph.kernels.cpu.stencils")
        layout.over_voxels(kernels.bend, bent, field, shifts, self._first, self._second)
        layout.fill_halo(self._bent)
        coefficients = shifts, self._absolute, self._laplacian, self._elastic
        fields = by_component(out), field, bent, by_component(self.hessian)
        layout.over_voxels(kernels.apply_operator, *fields, *coefficients, subtract)

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
        scale: float = np.finfo(self.layout.dtype).eps * evaluate_diagonal(*self._grid).max()
        return scale * self.layout.norm(x)

    def dense(self) -> NDArray[np.float64]:
        """Return H + L as matrices in float64: (lanes, unknowns, unknowns)."""
        lanes, penalty = self.layout.lanes, build_matrix(*self._grid)
        matrix = np.broadcast_to(penalty, (lanes, *penalty.shape)).copy()
        hessian = to_host(self.layout.unload(self.hessian)).reshape(lanes, len(self.hessian), -1)
        voxel = np.arange(hessian.shape[2])
        for packed, (i, j) in enumerate(packed_pairs(len(penalty))[: len(self.hessian)]):
            for row, column in {(i, j), (j, i)}:
                matrix[:, row, voxel, column, voxel] += hessian[:, packed]
        unknowns = len(penalty) * len(voxel)
        matrices: NDArray[np.float64] = matrix.reshape(lanes, unknowns, unknowns)
        return matrices
