"""Paths of blocks of images on a processor: the operations that `shooting` takes steps with.

A block goes through all its steps while it is in a processor's cache. Threads share the blocks, or
the voxels of one block if there are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from anamorph.arrays.typing import Array
from anamorph.geometry.operators import apply_symbol, real_fourier_matrix
from anamorph.geometry.warps import pull_batch, push_batch
from anamorph.kernels.blocks import Blocks
from anamorph.kernels.cpu.geodesics import take_short_steps
from anamorph.kernels.cpu.planes import multiply_planes
from anamorph.kernels.cpu.steps import compose_step, push_step, transposed_jacobian_step
from anamorph.kernels.threads import n_threads, run_parallel, slabs


class BlockPath:
    """The path of a block of images: velocity v, momentum u and displacement of psi so far.

    Parameters
    ----------
    fields : (N, d, *space)
        Initial velocities.
    operator, greens_function : (frequency, packed d x d)
        Symbols of L and of G, see `packed_symbol`.
    n_steps : int
        T.
    """

    def __init__(
        self, fields: Array, operator: Array, greens_function: Array, n_steps: int
    ) -> None:
        self._blocks = Blocks(fields.shape[2:], len(fields))
        self._greens_function = greens_function
        self._step = fields.dtype.type(1 / n_steps)
        is_penalised = bool(greens_function[0].any())  # w0 > 0; if not, G removes the total
        self._total_velocity = np.asarray(sum_over_space(fields, is_penalised).T)
        self._velocity = self._blocks.load(fields)
        self._is_short = self._takes_short_steps()
        self._momentum = np.empty_like(self._velocity)
        self._apply(operator, self._velocity, self._momentum)
        self._displacement: Array = self._velocity * -self._step
        self._spare = np.empty_like(self._velocity)

    @property
    def velocity(self) -> Array:
        """The velocity at the current end of the path, (N, d, *space)."""
        return self._blocks.unload(self._velocity)

    @property
    def displacement(self) -> Array:
        """The displacement of psi, (N, d, *space)."""
        return self._blocks.unload(self._displacement)

    def carry_momentum(self) -> None:
        """Set u = push(D(id - v/T)' u, id + v/T)."""
        blocks, velocity = self._blocks, self._velocity
        self._run(
            transposed_jacobian_step,
            (self._momentum, velocity, -self._step, self._spare),
            blocks.shifts,
        )
        blocks.fill_halo(self._spare)
        if self._is_short:
            self._run(
                push_step, (self._spare, velocity, self._step, self._momentum), *self._stencil
            )
        else:
            self._warp_components(push_batch, self._spare, self._step, self._momentum)

    def update_velocity(self) -> None:
        """Set v = G u."""
        self._apply(self._greens_function, self._momentum, self._velocity, self._total_velocity)
        self._blocks.fill_halo(self._velocity)
        self._is_short = self._takes_short_steps()

    def extend_warp(self) -> None:
        """Set psi = psi o (id - v/T)."""
        blocks, velocity, step = self._blocks, self._velocity, self._step
        if self._is_short:
            self._run(
                compose_step, (self._displacement, velocity, -step, self._spare), *self._stencil
            )
        else:
            self._warp_components(pull_batch, self._displacement, -step, self._spare)
            self._spare[blocks.interior] -= step * velocity[blocks.interior]
        blocks.fill_halo(self._spare)
        self._displacement, self._spare = self._spare, self._displacement

    @property
    def _stencil(self) -> tuple[object, ...]:
        return self._blocks.row_offsets, self._blocks.row_shifts, self._blocks.lanes

    def _takes_short_steps(self) -> bool:
        """Tell whether no component of v/T is longer than a voxel, as the fast loops require."""
        longest = max(self._velocity.max(), -self._velocity.min())
        return bool(longest * self._step <= 1)

    def _apply(self, symbol: Array, block: Array, out: Array, total: Array | None = None) -> None:
        """Multiply a block by a symbol; `total` is the sum over space of the result, if known."""
        interior = self._blocks.interior
        fields = block[interior][None]
        out[interior] = apply_symbol(fields, symbol, workers=n_threads(), total=total)[0]

    def _run(
        self,
        kernel: Callable[..., None],
        fields: tuple[Array, Array, np.floating, Array],
        *arguments: object,
    ) -> None:
        """Run a kernel of `kernels.cpu.steps` over the voxels inside the halo."""
        source, velocity, step, out = fields
        flat = [block.reshape(len(block), -1) for block in (source, velocity, out)]
        first, last = self._blocks.run

        def run_slab(slab: tuple[int, int]) -> None:
            bounds = first + slab[0], first + slab[1]
            kernel(flat[0], flat[1], step, flat[2], *arguments, *bounds)

        run_parallel(run_slab, slabs(last - first, n_threads()))

    def _warp_components(
        self,
        warp: Callable[[Array, Array], Array],
        source: Array,
        step: np.floating,
        out: Array,
    ) -> None:
        """Pull or push by any step * v, one component at a time, which takes less memory."""
        blocks = self._blocks
        displacement = np.ascontiguousarray(blocks.unload(self._velocity) * step)
        for i in range(len(source)):
            images = np.ascontiguousarray(blocks.unload(source[i : i + 1]))
            out[i : i + 1][blocks.interior] = np.moveaxis(warp(images, displacement), 0, -1)


class PlanePath(BlockPath):
    """The path of a block of small planes, see `is_small_plane`.

    Parameters are those of `BlockPath`, with symbols from `plane_symbol`.
    """

    def __init__(
        self, fields: Array, operator: Array, greens_function: Array, n_steps: int
    ) -> None:
        space, lanes = fields.shape[2:], len(fields)
        self._scratch = np.empty((2, 2, *space, lanes), fields.dtype)
        self._matrices = [real_fourier_matrix(length, fields.dtype) for length in space]
        super().__init__(fields, operator, greens_function, n_steps)

    def take_short_steps(self, n_steps: int) -> int:
        """Take up to n_steps steps in one call, until one is long; return how many were taken."""
        if not self._is_short:
            return 0
        blocks = self._blocks
        n_taken, is_composed = take_short_steps(
            *(self._velocity, self._momentum, self._displacement, self._spare, self._scratch),
            *(self._greens_function, *self._matrices, self._mean_coefficient(self._total_velocity)),
            *(self._step, blocks.shifts, blocks.row_offsets, blocks.row_shifts, n_steps),
        )
        if (n_taken - (not is_composed)) % 2:
            self._displacement, self._spare = self._spare, self._displacement
        if not is_composed:
            self._is_short = False
            self.extend_warp()
        return int(n_taken)

    def _apply(self, symbol: Array, block: Array, out: Array, total: Array | None = None) -> None:
        known = self._total_velocity if total is None else total
        multiply_planes(
            *(block, out, self._scratch, symbol, *self._matrices),
            *(self._mean_coefficient(known), total is not None),
        )

    def _mean_coefficient(self, total: Array) -> Array:
        """Return the coefficients of the constant function, (2, lanes), from sums over space."""
        norm = np.sqrt(math.prod(self._blocks.space))
        return np.asarray(total / norm, self._velocity.dtype)


def sum_over_space(fields: Array, is_penalised: bool) -> Array:
    """Return the sum of v over space, (N, d), which stays the same along the path.

    A push conserves totals, and the Jacobian adds sum(d_j v . L v) = 0, since differences are
    antisymmetric and commute with L. In float32 it must be kept, not recomputed: G would multiply
    the rounding errors of the total of u by 1/w0. Without w0, G removes the total.
    """
    total: Array = fields.sum(axis=tuple(range(2, fields.ndim)), dtype=np.float64)
    return total * is_penalised
