"""Short steps: the loops of geodesic shooting, for steps of at most one voxel along each axis.

Multilinear interpolation then involves only the 3^d neighbours of a voxel, each with a product of
`neighbour_weight`. Pull and push become stencils without branches or look-ups: the loops run over
long flat pieces of a block (see `kernels.blocks`) and vectorise. Longer steps take the general path
of `warps`.

Blocks are (component, flat). Threads share a block: each computes the memory from `start` to
`stop`. Every result is gathered, never scattered, so threads cannot collide.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, formula, kernel
from anamorph.kernels.formulas.steps import neighbour_weight, turned, twice_derivative

_PIECE = 1024  # numbers per inner loop: its working set stays in the first-level cache


@formula
def _row_weights(
    weights: Array, velocity: Array, first: int, scale: float, offset: IntArray
) -> None:
    """Fill in the weights with which steps scale * velocity reach `offset` and its x-neighbours.

    weights : (4, n), filled with the weights towards x - 1, x and x + 1; the last row is scratch.
    velocity : (d, flat), read from `first` on.
    offset : (d - 1,), along all axes but the last.
    """
    n = weights.shape[1]
    lead = weights[3]
    lead[:] = 1
    for axis in range(offset.size):
        step = velocity[axis, first : first + n]
        if offset[axis] == 0:
            for r in range(n):
                lead[r] *= neighbour_weight(scale * step[r], 0)
        elif offset[axis] == 1:
            for r in range(n):
                lead[r] *= neighbour_weight(scale * step[r], 1)
        else:
            for r in range(n):
                lead[r] *= neighbour_weight(scale * step[r], -1)
    step = velocity[offset.size, first : first + n]
    for r in range(n):
        weights[0, r] = lead[r] * neighbour_weight(scale * step[r], -1)
    for r in range(n):
        weights[1, r] = lead[r] * neighbour_weight(scale * step[r], 0)
    for r in range(n):
        weights[2, r] = lead[r] * neighbour_weight(scale * step[r], 1)


@formula
def _add_three(
    out: Array, w0: Array, w1: Array, w2: Array, f0: Array, f1: Array, f2: Array
) -> None:
    for r in range(out.size):
        out[r] += w0[r] * f0[r] + w1[r] * f1[r] + w2[r] * f2[r]


@formula
def _set_product(out: Array, scale: float, factor: Array) -> None:
    for r in range(out.size):
        out[r] = scale * factor[r]


@kernel
def compose_step(
    displacement: Array,
    velocity: Array,
    scale: float,
    out: Array,
    offsets: IntArray,
    shifts: IntArray,
    lanes: int,
    start: int,
    stop: int,
) -> None:
    """Compose with a small step s = scale * velocity: out = s + displacement(id + s).

    displacement, velocity, out : (d, flat); offsets, shifts : see `Blocks`.
    """
    weights = np.empty((4, _PIECE), out.dtype)
    for first in range(start, stop, _PIECE):
        n = min(_PIECE, stop - first)
        w = weights[:, :n]
        for c in range(out.shape[0]):
            _set_product(out[c, first : first + n], scale, velocity[c, first : first + n])
        for o in range(shifts.size):
            _row_weights(w, velocity, first, scale, offsets[o])
            near = first + shifts[o]
            for c in range(out.shape[0]):
                _add_three(
                    out[c, first : first + n],
                    w[0],
                    w[1],
                    w[2],
                    displacement[c, near - lanes : near - lanes + n],
                    displacement[c, near : near + n],
                    displacement[c, near + lanes : near + lanes + n],
                )


@kernel
def push_step(
    momentum: Array,
    velocity: Array,
    scale: float,
    out: Array,
    offsets: IntArray,
    shifts: IntArray,
    lanes: int,
    start: int,
    stop: int,
) -> None:
    """Push along a small step s = scale * velocity: the transpose of pulling at id + s.

    momentum, velocity, out : (d, flat). The voxel x receives from x - o what goes the way o.
    """
    weights = np.empty((4, _PIECE + 2 * lanes), out.dtype)
    for first in range(start, stop, _PIECE):
        n = min(_PIECE, stop - first)
        w = weights[:, : n + 2 * lanes]
        out[:, first : first + n] = 0
        for o in range(shifts.size):
            source = first - shifts[o] - lanes
            _row_weights(w, velocity, source, scale, offsets[o])
            for c in range(out.shape[0]):
                _add_three(
                    out[c, first : first + n],
                    w[2, :n],
                    w[1, lanes : lanes + n],
                    w[0, 2 * lanes : 2 * lanes + n],
                    momentum[c, source : source + n],
                    momentum[c, source + lanes : source + lanes + n],
                    momentum[c, source + 2 * lanes : source + 2 * lanes + n],
                )


@kernel
def transposed_jacobian_step(
    momentum: Array,
    velocity: Array,
    scale: float,
    out: Array,
    shifts: IntArray,
    start: int,
    stop: int,
) -> None:
    """Multiply by the transposed Jacobian of a small step: out = D(id + scale velocity)' momentum.

    out_j = momentum_j + scale sum_i (d_j velocity_i) momentum_i, with central differences;
    momentum, velocity, out : (d, flat); shifts : (d,), to the next voxel along each axis.
    """
    one, half = out.dtype.type(1), scale * out.dtype.type(0.5)
    for first in range(start, stop, _PIECE):
        last = min(first + _PIECE, stop)
        for j in range(shifts.size):
            shift = shifts[j]
            product = out[j, first:last]
            _set_product(product, one, momentum[j, first:last])
            for i in range(shifts.size):
                _add_derivative(
                    product,
                    half,
                    velocity[i, first - shift : last - shift],
                    velocity[i, first + shift : last + shift],
                    momentum[i, first:last],
                )


@formula
def _add_derivative(out: Array, half: float, before: Array, after: Array, factor: Array) -> None:
    for r in range(out.size):
        out[r] = turned(out[r], half, twice_derivative(before[r], after[r], factor[r]))
