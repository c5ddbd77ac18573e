"""Conjugate gradients, preconditioned by a multigrid cycle, in all lanes at once.

Two measures of the error must become small: the residual, which sees what is rough, and the error
in the energy norm, which sees what is smooth. The second comes for free: each step lowers the
squared energy of the error by a known gain, and the gains to come are about a geometric series.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.typing import BoolArray, IntArray
from anamorph.solvers.multigrid import Level
from anamorph.solvers.systems import Field, PerLane

# By how much the error in the energy norm may exceed its estimate.
_SAFETY = 2.0
# The ratio of successive gains to expect at first, and the range in which it is believed later.
_FIRST_RATIO = 0.3
_RATIOS = (0.1, 0.99)


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
