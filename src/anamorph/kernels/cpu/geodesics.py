"""Whole geodesics of small planes: all steps of a block of images in one call.

Between calls threads wait for Python's interpreter lock. Where a step takes a fraction of a
millisecond, two threads that call a kernel for each part of it are hardly faster than one.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, kernel, per_voxel
from anamorph.kernels.cpu.blocks import fill_halo_of
from anamorph.kernels.cpu.spectrum import multiply_real_symbol
from anamorph.kernels.cpu.steps import compose_step, push_step, transposed_jacobian_step


@kernel
def take_short_steps(
    velocity: Array,
    momentum: Array,
    displacement: Array,
    spare: Array,
    scratch: Array,
    symbol: Array,
    mean_coefficient: Array,
    along_y: Array,
    along_x: Array,
    step: float,
    shifts: IntArray,
    row_offsets: IntArray,
    row_shifts: IntArray,
    n_steps: int,
) -> tuple[int, bool]:
    """Take steps of geodesic shooting while they are short: see `geometry.shooting`.

    Parameters
    ----------
    velocity, momentum, displacement, spare : (2, ny + 2, nx + 2, lanes)
        Blocks with their halos filled (but for that of the momentum); where the path stands, in
        and out. Displacement and spare change places with every step.
    scratch : (2, 2, ny, nx, lanes)
    symbol : (nx * ny, 3)
        Of the Green's function, as for `multiply_real_symbol`, with x before y.
    mean_coefficient : (2, lanes)
        The coefficient of the constant in every velocity of the path.
    along_y, along_x : matrices of `geometry.planes`
    step : 1/T
    shifts, row_offsets, row_shifts : of the `BlockLayout`
    n_steps : int
        How many to take at most; the first must be short.

    Returns
    -------
    n_taken : int
        Steps whose velocity has been found.
    is_composed : bool
        Whether the last of these is part of the displacement; if not, it was too long.
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
        fill_halo_of(spare.reshape(-1), shape)
        push_step(
            flat_spare, flat_velocity, step, flat_momentum,
            row_offsets, row_shifts, lanes, first, last,
        )  # fmt: skip
        _find_velocity(velocity, momentum, scratch, symbol, mean_coefficient, along_y, along_x)
        fill_halo_of(velocity.reshape(-1), shape)
        if not _is_short(velocity, step):
            return n + 1, False
        compose_step(
            displacement.reshape(2, -1), flat_velocity, -step, flat_spare,
            row_offsets, row_shifts, lanes, first, last,
        )  # fmt: skip
        fill_halo_of(spare.reshape(-1), shape)
        displacement, spare = spare, displacement
    return n_steps, True


@per_voxel
def _find_velocity(
    velocity: Array,
    momentum: Array,
    scratch: Array,
    symbol: Array,
    mean_coefficient: Array,
    along_y: Array,
    along_x: Array,
) -> None:
    """Set v = G u: `geometry.planes.apply_real_symbol`, with the halo left as it is."""
    _, _, ny, nx, lanes = scratch.shape
    flat = scratch.reshape(2, 2, ny * nx * lanes)
    first, second = flat[0], flat[1]
    back_y, back_x = along_y.T.copy(), along_x.T.copy()
    for c in range(2):
        rows, swapped = first[c].reshape(ny, nx * lanes), second[c].reshape(ny, nx * lanes)
        for y in range(ny):
            rows.reshape(ny, nx, lanes)[y] = momentum[c, y + 1, 1 : nx + 1]
        np.dot(along_y, rows, swapped)
        _swap_axes(swapped.reshape(ny, nx, lanes), first[c].reshape(nx, ny, lanes))
        np.dot(along_x, first[c].reshape(nx, ny * lanes), second[c].reshape(nx, ny * lanes))
    multiply_real_symbol(second.reshape(2, nx * ny, lanes), symbol, nx, ny)
    second.reshape(2, nx * ny, lanes)[:, 0] = mean_coefficient
    for c in range(2):
        columns, rows = first[c].reshape(nx, ny * lanes), first[c].reshape(ny, nx * lanes)
        np.dot(back_x, second[c].reshape(nx, ny * lanes), columns)
        _swap_axes(columns.reshape(nx, ny, lanes), second[c].reshape(ny, nx, lanes))
        np.dot(back_y, second[c].reshape(ny, nx * lanes), rows)
        for y in range(ny):
            velocity[c, y + 1, 1 : nx + 1] = rows.reshape(ny, nx, lanes)[y]


@per_voxel
def _swap_axes(source: Array, out: Array) -> None:
    """Set out (b, a, lanes) to source (a, b, lanes), so that all products are large ones."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            line, place = source[i, j], out[j, i]
            for r in range(line.size):
                place[r] = line[r]


@per_voxel
def _is_short(velocity: Array, step: float) -> bool:
    """Tell whether no component of v/T is longer than a voxel."""
    rows = velocity.reshape(-1, velocity.shape[2] * velocity.shape[3])
    longest = np.zeros(rows.shape[1], velocity.dtype)
    for r in range(rows.shape[0]):
        row = rows[r]
        for i in range(row.size):
            longest[i] = max(longest[i], abs(row[i]))
    return longest.max() * step <= 1
