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

Conjugate gradients, preconditioned by a cycle, do the rest, in all lanes at once. Two measures of
the error must become small: the residual, which sees what is rough, and the error in the energy
norm, which sees what is smooth. The second comes for free: each step lowers the squared energy of
the error by a known gain, and the gains to come are about a geometric series.
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
from anamorph.arrays.typing import BoolArray, IntArray
from anamorph.solvers.system_operator import SystemOperator, bound_rough_spectrum
from anamorph.solvers.systems import Field, FieldBlocks, PerLane, by_component

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

# By how much the error in the energy norm may exceed its estimate.
_SAFETY = 2.0
# The ratio of successive gains to expect at first, and the range in which it is believed later.
_FIRST_RATIO = 0.3
_RATIOS = (0.1, 0.99)


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


def conjugate_gradients(
    level: Level, x: Field, right_hand_side: Field, tolerance: float, max_cycles: int
) -> tuple[PerLane, IntArray, BoolArray]:
    """Improve `x` in place, until it solves (H + L) x = g in every lane.

    The residual that conjugate gradients carry along drifts away from the true one by rounding.
    The true one is evaluated in the end, and the iteration restarted from there while that helps.

    Parameters
    ----------
    level
        The finest level: its operator is H + L, its cycle the preconditioner.
    x, right_hand_side
        The solution so far, and g; with their padding filled.
    tolerance
        The residual, relative to g, and the error in the energy norm, relative to x, to reach.
    max_cycles
        The most cycles to do.

    Returns
    -------
    residual
        The norm of g - (H + L) x relative to that of g, per lane.
    n_cycles
        The number of cycles done, per lane.
    has_converged
        Whether the tolerance is reached, or what rounding `x` to its number type allows, per lane.
    """
    blocks = level.operator.blocks
    scale = blocks.norm(right_hand_side)
    n_cycles = blocks.per_lane(0, np.int64)
    relative = np.where(scale > 0, np.inf, 0.0)
    has_arrived = scale == 0
    while True:
        residual = right_hand_side.copy()
        level.operator.subtract(residual, x)
        previous, relative = relative, _ratio(blocks.norm(residual), scale)
        # The first descent is due even to a small residual, as it tells the error in energy.
        is_active = np.isinf(previous) | ((relative > tolerance) & (relative < previous / 2))
        cycles_left = max_cycles - int(n_cycles.max())
        if cycles_left <= 0 or not is_active.any():
            rounding = _ratio(level.operator.rounding(x), scale)
            return relative, n_cycles, has_arrived & (relative <= np.maximum(tolerance, rounding))
        descent = _Descent(level, x, residual, right_hand_side, tolerance)
        cycles, is_on_its_way = descent.run(is_active, cycles_left)
        n_cycles += cycles
        has_arrived |= is_active & ~is_on_its_way


class _Descent:
    """One run of conjugate gradients, on `x` and `residual` in place."""

    def __init__(
        self, level: Level, x: Field, residual: Field, right_hand_side: Field, tolerance: float
    ) -> None:
        self.level, self.blocks, self.tolerance = level, level.operator.blocks, tolerance
        self.x, self.residual, self.right_hand_side = x, residual, right_hand_side
        self.direction, self.product = np.zeros_like(x), np.zeros_like(x)
        self.slope: PerLane = self.blocks.per_lane(0)
        self.gain: PerLane = self.blocks.per_lane(0)

    def run(self, is_active: BoolArray, max_cycles: int) -> tuple[IntArray, BoolArray]:
        """Descend until all lanes converge; return their cycles, and which have not converged."""
        n_cycles = self.blocks.per_lane(0, np.int64)
        ratio = self.blocks.per_lane(_FIRST_RATIO)
        while is_active.any() and n_cycles.max() < max_cycles:
            previous_gain, previous_ratio = self.gain, ratio
            self._step(is_active)
            n_cycles += is_active
            ratio = _ratio(self.gain, previous_gain, otherwise=_FIRST_RATIO)
            # Full multigrid leaves rough errors, which vanish first: the slower ratio counts.
            slower = np.clip(np.maximum(ratio, previous_ratio), *_RATIOS)
            left = self.gain * slower / (1 - slower)
            is_active = is_active & ~self._has_arrived(left)
        self.blocks.fill_halo(self.x)
        return n_cycles, is_active

    def _step(self, is_active: BoolArray) -> None:
        """Move `x` along a conjugate direction; lanes that have converged stay as they are."""
        blocks = self.blocks
        preconditioned = self.level.cycle(self.residual)
        previous_slope, self.slope = self.slope, blocks.dot(self.residual, preconditioned)
        blocks.scale_and_add(self.direction, _ratio(self.slope, previous_slope), preconditioned)
        blocks.fill_halo(self.direction)
        self.level.operator.apply(self.product, self.direction)
        curvature = blocks.dot(self.direction, self.product)
        length = np.where(is_active, _ratio(self.slope, curvature), 0.0)
        blocks.add_scaled(self.x, length, self.direction)
        blocks.add_scaled(self.residual, -length, self.product)
        self.gain = length * self.slope

    def _has_arrived(self, squared_error: PerLane) -> BoolArray:
        blocks, g = self.blocks, self.right_hand_side
        energy = blocks.dot(self.x, g)
        is_close = _SAFETY**2 * squared_error <= self.tolerance**2 * energy
        is_small = blocks.norm(self.residual) <= self.tolerance * blocks.norm(g)
        return np.logical_and(is_close, is_small)


def _ratio(a: PerLane, b: PerLane, otherwise: float = 0.0) -> PerLane:
    """Return a / b, and `otherwise` where b is 0."""
    is_zero = b == 0
    return np.where(is_zero, otherwise, a / np.where(is_zero, 1.0, b))
