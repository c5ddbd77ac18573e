"""Full multigrid (Ashburner, 2007): each grid relaxes rough errors, coarser grids smooth ones.

A level's cycle is the classical V: relax, average the residual on the coarser grid, solve there in
the same way, interpolate the correction back, relax again. The coarsest grid is solved exactly.
Full multigrid starts from the coarsest grid, with one V-cycle on each finer one.

Relaxation is block-Jacobi, accelerated by Chebyshev polynomials on the upper part of the spectrum:
the errors that are too rough for the coarser grid. It relaxes all voxels at once, with the same
steps before and after: a cycle is a symmetric operator.

Between grids, fields are interpolated linearly along each axis in turn, for any ratio of lengths.
Averaging is the transpose, divided by the ratio. Voxels of both grids are centred on the same
periodic domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from anamorph.arrays.devices import beside, kernels_for
from anamorph.solvers.system_operator import SystemOperator, bound_rough_spectrum
from anamorph.solvers.systems import Field, FieldBlocks, by_component

# Relaxations before and after: the least work per digit over the penalties of the paper. So few
# cannot treat a spectrum wider than this, and need not know one narrower.
_N_RELAXATIONS = 2
_WIDEST_SPECTRUM = 40.0
_NARROWEST_SPECTRUM = 2.0
# The coarsest system is solved exactly, as a dense one; it has at most this many voxels.
_LARGEST_DENSE = 16
# Axes whose spacing exceeds the smallest one by more than this wait until the others caught up:
# relaxation does not smooth along them yet.
_LARGEST_ANISOTROPY = 1.5
# Without an absolute penalty (w0 = 0), constants may be free: this holds them on the coarsest grid.
_RELATIVE_RIDGE = 1e-6


def multigrid(operator: SystemOperator) -> Level:
    """Return the finest level of the hierarchy of grids below `operator`."""
    is_coarsest = prod(operator.blocks.space) <= _LARGEST_DENSE
    return CoarsestLevel(operator) if is_coarsest else SmoothedLevel(operator)


class CoarsestLevel:
    """The coarsest level, solved exactly."""

    def __init__(self, operator: SystemOperator) -> None:
        self.operator, self._blocks = operator, operator.blocks
        matrices = operator.dense()
        if operator.regulariser.penalty[0] == 0:
            size = matrices.shape[1]
            ridge = _RELATIVE_RIDGE * np.trace(matrices, axis1=1, axis2=2) / size
            matrices += ridge[:, None, None] * np.eye(size)
        self._inverse = beside(operator.hessian, np.linalg.inv(matrices))

    def cycle(self, residual: Field) -> Field:
        """Return the exact correction for a residual."""
        batch = self._blocks.unload(residual)
        vectors = batch.reshape(len(batch), -1, 1).astype(np.float64)
        return self._blocks.load((self._inverse @ vectors).reshape(batch.shape))

    solve_fully = cycle


class SmoothedLevel:
    """A level that relaxes errors, and passes smooth ones to the next coarser level."""

    def __init__(self, operator: SystemOperator) -> None:
        self.operator, self._blocks = operator, operator.blocks
        self._inverse_blocks = operator.inverse_blocks()
        n_components = operator.regulariser.n_components
        self._correction, self._step, self._residual = (
            self._blocks.zeros(n_components) for _ in range(3)
        )
        self._coarser = multigrid(_coarsened(operator))
        self._chebyshev = _plan_relaxations(operator, self._coarser.operator.blocks.space)

    def cycle(self, residual: Field) -> Field:
        """Return the correction that a V-cycle finds; the next one overwrites it."""
        self._correction[...] = 0
        self._residual[...] = residual
        self._relax()
        self.operator.subtract(self._residual, self._step)
        coarse_residual = restrict(self._residual, self._coarser.operator.blocks)
        self._step = prolong(self._coarser.cycle(coarse_residual), self._blocks)
        self._correction += self._step
        self.operator.subtract(self._residual, self._step)
        self._relax()
        return self._correction

    def solve_fully(self, right_hand_side: Field) -> Field:
        """Return the solution of full multigrid, its halo filled."""
        coarse = self._coarser.solve_fully(restrict(right_hand_side, self._coarser.operator.blocks))
        x = prolong(coarse, self._blocks)
        residual = right_hand_side.copy()
        self.operator.subtract(residual, x)
        x += self.cycle(residual)
        self._blocks.fill_halo(x)
        return x

    def _relax(self) -> None:
        """Relax the correction; the residual then includes all steps but the last."""
        for k, (inertia, rate) in enumerate(self._chebyshev):
            if k > 0:
                self.operator.subtract(self._residual, self._step)
            fields = self._step, self._correction, self._residual, self._inverse_blocks
            relax = kernels_for(self._step, "anamorph.kernels.cpu.smoothing").relax
            self._blocks.over_voxels(relax, *map(by_component, fields), inertia, rate)
            self._blocks.fill_halo(self._step)


Level = CoarsestLevel | SmoothedLevel


def _coarsened(operator: SystemOperator) -> SystemOperator:
    """Return the operator on the next coarser grid: L rediscretised, H averaged."""
    shape, spacing = coarser_grid(operator.blocks.space, operator.spacing)
    blocks = replace(operator.blocks, space=shape)
    hessian = restrict(operator.hessian, blocks)
    return SystemOperator(blocks, spacing, operator.regulariser, hessian)


def coarser_grid(
    shape: tuple[int, ...], spacing: tuple[float, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the shape and the spacing of the next coarser grid, about half as long."""
    finest = min(h for n, h in zip(shape, spacing, strict=True) if n > 1)
    coarse = tuple(
        (n + 1) // 2 if h <= _LARGEST_ANISOTROPY * finest else n
        for n, h in zip(shape, spacing, strict=True)
    )
    return coarse, tuple(h * n / m for h, n, m in zip(spacing, shape, coarse, strict=True))


def _plan_relaxations(
    operator: SystemOperator, coarse_shape: tuple[int, ...]
) -> list[tuple[np.floating, np.floating]]:
    """Return the inertia and the rate of each relaxation.

    The eigenvalues to treat are those of D^-1 L for rough fields; H draws them towards 1, which
    lies between.
    """
    blocks = operator.blocks
    smallest, largest = bound_rough_spectrum(
        operator.regulariser, blocks.space, operator.spacing, coarse_shape
    )
    smallest = np.clip(smallest, largest / _WIDEST_SPECTRUM, largest / _NARROWEST_SPECTRUM)
    centre, radius = (largest + smallest) / 2, (largest - smallest) / 2
    ratio, coefficients = radius / centre, [(0.0, 1 / centre)]
    for _ in range(1, _N_RELAXATIONS):
        previous, ratio = ratio, 1 / (2 * centre / radius - ratio)
        coefficients.append((ratio * previous, 2 * ratio / radius))
    real = blocks.dtype.type
    return [(real(inertia), real(rate)) for inertia, rate in coefficients]


def prolong(field: Field, fine: FieldBlocks) -> Field:
    """Return a field of a coarser grid, interpolated on grid `fine`."""
    return _transferred(field, fine, "prolong_axis", reversed(range(len(fine.space))))


def restrict(field: Field, coarse: FieldBlocks) -> Field:
    """Return a field of a finer grid, averaged on grid `coarse`."""
    return _transferred(field, coarse, "restrict_axis", range(len(coarse.space)))


def _transferred(field: Field, blocks: FieldBlocks, name: str, axes: Iterable[int]) -> Field:
    """Return a field on another grid, brought there by a kernel along one axis after the other."""
    kernel = getattr(kernels_for(field, "anamorph.kernels.cpu.stencils"), name)
    for axis in axes:
        n_coarse, n_fine = sorted((field.shape[axis + 1] - 2, blocks.space[axis]))
        if n_fine != n_coarse:
            shape = (*field.shape[: axis + 1], blocks.space[axis] + 2, *field.shape[axis + 2 :])
            result = np.empty_like(field, shape=shape)
            neighbours = _find_coarse_neighbours(n_fine, n_coarse, field.dtype, blocks.is_on_device)
            kernel(_seen_along(result, axis), _seen_along(field, axis), *neighbours)
            field = result
    blocks.fill_halo(field)
    return field


@cache
def _find_coarse_neighbours(
    n_fine: int, n_coarse: int, dtype: np.dtype[Any], is_on_device: bool
) -> tuple[Any, ...]:
    """Return the coarse voxels left and right of each fine one, and where it lies between them."""
    position = (np.arange(n_fine) + 0.5) * n_coarse / n_fine - 0.5
    left = np.floor(position).astype(np.int64)
    neighbours = left % n_coarse, (left + 1) % n_coarse, (position - left).astype(dtype)
    if is_on_device:
        return tuple(map(import_module("cupy").asarray, neighbours))
    return neighbours


def _seen_along(field: Field, axis: int) -> Field:
    """Return a field seen as (outer, padded axis, inner)."""
    return field.reshape(prod(field.shape[: axis + 1]), field.shape[axis + 1], -1)
