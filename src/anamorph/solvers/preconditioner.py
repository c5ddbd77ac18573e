"""About the inverse of H + weight L: a V-cycle of multigrid, prepared once for many fields.

A cycle is a symmetric, positive operator, as a metric of quasi-Newton steps must be. It costs a
fraction of a solution, and most of what a solution prepares stays as it is while H does.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.devices import beside, is_on_device, to_host
from anamorph.arrays.typing import Array
from anamorph.kernels.threads import n_threads, run_parallel
from anamorph.solvers.multigrid import Level, multigrid
from anamorph.solvers.system_operator import Regulariser, SystemOperator
from anamorph.solvers.systems import FieldBlocks, check_systems, is_sooner_on_host


class VelocityPreconditioner:
    """About the inverse of H + weight L, for velocities.

    Parameters
    ----------
    hessian : (N, P, *space)
        H, packed, positive semi-definite at every voxel.
    penalty : 5 numbers
        Weights of the operator L.
    voxel_size : d numbers
    weight : float
    """

    def __init__(
        self,
        hessian: Array,
        penalty: tuple[float, ...],
        voxel_size: tuple[float, ...],
        weight: float,
    ) -> None:
        d = len(voxel_size)
        nothing = np.zeros_like(hessian, shape=(len(hessian), d, *hessian.shape[2:]))
        self._is_small = is_sooner_on_host(nothing)
        if self._is_small:
            nothing = to_host(nothing)
        matrices = to_host(hessian) if self._is_small else hessian
        regulariser = Regulariser(penalty, voxel_size, d)
        systems = check_systems(matrices, nothing, regulariser, weight, None)
        self._is_on_device = is_on_device(matrices)
        self._inverse_weight = matrices.dtype.type(1 / weight)
        self._parts = systems.split_into_blocks()

        def prepare(part: slice) -> Level:
            some = systems.hessian[part]
            blocks = FieldBlocks(some.shape[2:], len(some), some.dtype, self._is_on_device)
            scaled = blocks.load(some * self._inverse_weight)
            return multigrid(SystemOperator(blocks, voxel_size, regulariser, scaled))

        self._levels = [prepare(part) for part in self._parts]

    def __call__(self, fields: Array) -> Array:
        """Return about (H + weight L)^-1 times fields (N, d, *space)."""
        given = to_host(fields) if self._is_small else fields
        result = np.empty_like(given)

        def solve(number: int) -> None:
            level, part = self._levels[number], self._parts[number]
            blocks = level.operator.blocks
            result[part] = blocks.unload(level.cycle(blocks.load(given[part])))

        numbers = range(len(self._parts))
        if len(self._parts) >= n_threads() and not self._is_on_device:
            run_parallel(solve, list(numbers))
        else:  # threads then share the voxels of each part
            for number in numbers:
                solve(number)
        result *= self._inverse_weight
        return beside(fields, result) if self._is_small else result
