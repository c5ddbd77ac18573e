"""Whole geodesics of small planes: all steps of a block of images in one call.

This repeats the order of the steps in `geometry.shooting` (Algorithm 4), with the same kernels.
Between calls threads wait for Python's interpreter lock: where a step takes a fraction of a
millisecond, two threads that call one kernel after the other are hardly faster than one.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, formula, kernel
from anamorph.kernels.cpu.planes import multiply_planes
from anamorph.kernels.cpu.stencils import fill_halo
from anamorph.kernels.cpu.steps import compose_step, push_step, transposed_jacobian_step


@kernel
def take_short_steps(
    velocity: Array,
    momentum: Array,
    displacement: Array,
    spare: Array,
    scratch: Array,
    symbol: Array,
    along_y: Array,
    along_x: Array,
    mean_coefficient: Array,
    step: float,
    shifts: IntArray,
    row_offsets: IntArray,
    row_shifts: IntArray,
    n_steps: int,
) -> tuple[int, bool]:
    """Take steps of geodesic shooting while they are short.

    Parameters
    ----------
    velocity, momentum, displacement, spare : (2, ny + 2, nx + 2, lanes)
        Blocks with their halos filled (that of the momentum need not be): the state of the path,
        updated in place. Displacement and spare swap roles with every step.
    scratch : (2, 2, ny, nx, lanes)
    symbol, mean_coefficient, along_y, along_x
        Of the Green's function G, as for `multiply_planes`. The mean velocity stays the same along
        the path.
    step : 1/T
    shifts, row_offsets, row_shifts : of the `Blocks`
    n_steps : int
        The most steps to take; the first must be short.

    Returns
    -------
    n_taken : int
        Steps whose velocity is known.
    is_composed : bool
        Whether the last of these is part of the displacement. If not, it was too long.
    """
    shape = velocity.shape
    _, _, width, lanes = shape
    first = (width + 1) * lanes
    last = velocity[0].size - first
    flat_velocity, flat_momentum = velocity.reshape(2, -1), momentum.reshape(2, -1)
    for n in range(n_steps):
        flat_spare = spare.reshape(2, -1)
        transposed_jacobian_step(
            flat_momentum, flat_velocity, -step, flat_spare, shifts, first, last
        )
        fill_halo(spare.reshape(-1), shape)
        push_step(
            flat_spare, flat_velocity, step, flat_momentum,
            row_offsets, row_shifts, lanes, first, last,
        )  # fmt: skip
        multiply_planes(
            momentum, velocity, scratch, symbol, along_y, along_x, mean_coefficient, True
        )
        fill_halo(velocity.reshape(-1), shape)
        if not _is_short(velocity, step):
            return n + 1, False
        compose_step(
            displacement.reshape(2, -1), flat_velocity, -step, flat_spare,
            row_offsets, row_shifts, lanes, first, last,
        )  # fmt: skip
        fill_halo(spare.reshape(-1), shape)
        displacement, spare = spare, displacement
    return n_steps, True


@formula
def _is_short(velocity: Array, step: float) -> bool:
    """Tell whether no component of v/T is longer than a voxel."""
    rows = velocity.reshape(-1, velocity.shape[2] * velocity.shape[3])
    longest = np.zeros(rows.shape[1], velocity.dtype)
    for r in range(rows.shape[0]):
        row = rows[r]
        for i in range(row.size):
            longest[i] = max(longest[i], abs(row[i]))
    return longest.max() * step <= 1
