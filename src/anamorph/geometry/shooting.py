"""Geodesic shooting: from an initial velocity to the diffeomorphism it generates.

The momentum is carried along step by step, which is more stable than going back to the initial
one (Algorithm 4 of the paper as printed):

    u = L v;  psi = id - v/T
    repeat T - 1 times:
        u = push(D(id - v/T)' u, id + v/T)
        v = G u
        psi = psi o (id - v/T)

Many images are shot in blocks, each block going through all its steps while it is in a
processor's cache; the blocks are what threads share. Few images are shot one after the other,
and threads share the voxels of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.namespaces import is_on_device
from anamorph.geometry.geodesics_on_device import shoot_on_device
from anamorph.geometry.grid import Array, check_penalty, check_vector_field, check_voxel_size
from anamorph.geometry.operators import apply_symbol, packed_symbol
from anamorph.geometry.penalties import VELOCITY_WEIGHTS
from anamorph.geometry.planes import apply_real_symbol, is_small_plane, real_fourier_matrix
from anamorph.geometry.warps import pull_batch, push_batch
from anamorph.kernels.cpu.blocks import BlockLayout, lanes_per_block
from anamorph.kernels.cpu.geodesics import take_short_steps
from anamorph.kernels.cpu.steps import compose_step, push_step, transposed_jacobian_step
from anamorph.kernels.threads import n_threads, one_blas_thread, run_parallel, slabs


@overload
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: Literal[False] = False,
) -> Array: ...
@overload
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: Literal[True],
) -> tuple[Array, Array]: ...
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: bool = False,
) -> Array | tuple[Array, Array]:
    """Return the displacement of the diffeomorphism psi that an initial velocity generates.

    Parameters
    ----------
    v : array of shape (..., d, *space)
        Initial velocities in voxels, on a periodic grid of d = 2 or 3 axes.
    penalty : 5 numbers
        Weights (w0, ..., w4) of the operator L, as for `momentum`.
    voxel_size : d numbers, optional
        Size of a voxel along each axis; 1 by default.
    n_steps : int
        Number T of Euler steps.
    return_velocity : bool
        Return the velocity at the end of the path too.

    Returns
    -------
    displacement : array of the shape of v
        In voxels: psi = id + displacement.
    velocity : array of the shape of v
        Only with `return_velocity`.
    """
    array, d = check_vector_field(v, "v", None if voxel_size is None else np.size(voxel_size))
    if not isinstance(n_steps, int | np.integer) or n_steps < 1:
        raise ValueError(f"n_steps must be an integer >= 1, got {n_steps!r}")
    space = array.shape[-d:]
    weights = check_penalty(penalty, VELOCITY_WEIGHTS)
    size = check_voxel_size(voxel_size, d)
    fields = array.reshape(-1, d, *space)
    if not is_on_device(array) and not np.all(np.isfinite(array)):
        raise ValueError("v must be finite, got NaN or infinity")
    final = np.empty_like(fields) if return_velocity else None
    shoot_fields = shoot_on_device if is_on_device(array) else _shoot_in_blocks
    end = shoot_fields(fields, weights, size, int(n_steps), final).reshape(array.shape)
    return end if final is None else (end, final.reshape(array.shape))


def _shoot_in_blocks(
    fields: Array,
    penalty: tuple[float, ...],
    voxel_size: tuple[float, ...],
    n_steps: int,
    velocity: Array | None = None,
) -> Array:
    """Return displacements of velocities (N, d, *space), a block of images at a time.

    `velocity`, of the same shape, is filled with the velocity at the end of the path.
    """
    _, d, *space = fields.shape
    lanes = lanes_per_block(d, tuple(space), fields.itemsize)
    blocks = slabs(len(fields), -(-len(fields) // lanes))
    by_matrices = is_small_plane(tuple(space), len(fields) // max(1, len(blocks)))
    operator, greens_function = (
        packed_symbol(
            penalty, tuple(space), voxel_size, fields.dtype, inverse=inverse, half=not by_matrices
        )
        for inverse in (False, True)
    )
    displacement = np.empty_like(fields)

    def shoot_block(bounds: tuple[int, int]) -> None:
        part = slice(*bounds)
        geodesic = _Geodesic(fields[part], operator, greens_function, n_steps, by_matrices)
        n_taken = geodesic.take_short_steps(n_steps - 1) if by_matrices else 0
        for _ in range(n_steps - 1 - n_taken):
            geodesic.carry_momentum()
            geodesic.update_velocity()
            geodesic.extend_warp()
        displacement[part] = geodesic.layout.unload(geodesic.displacement)
        if velocity is not None:
            velocity[part] = geodesic.layout.unload(geodesic.velocity)

    if len(blocks) >= n_threads():
        with one_blas_thread if by_matrices else nullcontext():
            run_parallel(shoot_block, blocks)
    else:
        for bounds in blocks:
            shoot_block(bounds)
    return displacement


class _Geodesic:
    """The path of one block of images: its velocity, its momentum and the warp so far."""

    def __init__(
        self,
        fields: Array,
        operator: Array,
        greens_function: Array,
        n_steps: int,
        by_matrices: bool,
    ) -> None:
        self.layout = BlockLayout(fields.shape[2:], len(fields))
        if by_matrices:
            self._scratch = np.empty((2, 2, *fields.shape[2:], len(fields)), fields.dtype)
        self.by_matrices = by_matrices
        self.greens_function = greens_function
        self.step = fields.dtype.type(1 / n_steps)
        self.velocity = self.layout.load(fields)
        self.takes_short_steps = self._is_short()
        self.momentum = np.empty_like(self.velocity)
        self.momentum[self.layout.interior] = self._apply(operator, self.velocity)
        self.total_velocity = self._conserved_total(fields, greens_function)
        self.displacement: Array = self.velocity * -self.step
        self._spare = np.empty_like(self.velocity)

    def take_short_steps(self, n_steps: int) -> int:
        """Take steps in one go until one is too long, and return how many were taken."""
        if not self.takes_short_steps:
            return 0
        space, layout = self.layout.space, self.layout
        symbol = self.greens_function.reshape(*space, -1).swapaxes(0, 1)
        n_taken, is_composed = take_short_steps(
            self.velocity,
            self.momentum,
            self.displacement,
            self._spare,
            self._scratch,
            np.ascontiguousarray(symbol).reshape(math.prod(space), -1),
            (self.total_velocity / np.sqrt(math.prod(space))).astype(self.velocity.dtype),
            *(real_fourier_matrix(length, self.velocity.dtype) for length in space),
            self.step,
            layout.shifts,
            layout.row_offsets,
            layout.row_shifts,
            n_steps,
        )
        if (n_taken - (not is_composed)) % 2:
            self.displacement, self._spare = self._spare, self.displacement
        if not is_composed:
            self.takes_short_steps = False
            self.extend_warp()
        return int(n_taken)

    def carry_momentum(self) -> None:
        """Take u to push(D(id - v/T)' u, id + v/T)."""
        self._run(
            transposed_jacobian_step,
            self.momentum,
            self.velocity,
            -self.step,
            self._spare,
            self.layout.shifts,
        )
        self.layout.fill_halo(self._spare)
        if self.takes_short_steps:
            self._run(
                push_step,
                self._spare,
                self.velocity,
                self.step,
                self.momentum,
                self.layout.row_offsets,
                self.layout.row_shifts,
                self.layout.lanes,
            )
        else:
            self._warp_components(push_batch, self._spare, self.step, self.momentum)

    def update_velocity(self) -> None:
        """Set v = G u."""
        self.velocity[self.layout.interior] = self._apply(
            self.greens_function, self.momentum, self.total_velocity
        )
        self.layout.fill_halo(self.velocity)
        self.takes_short_steps = self._is_short()

    def extend_warp(self) -> None:
        """Take psi to psi o (id - v/T)."""
        if self.takes_short_steps:
            self._run(
                compose_step,
                self.displacement,
                self.velocity,
                -self.step,
                self._spare,
                self.layout.row_offsets,
                self.layout.row_shifts,
                self.layout.lanes,
            )
        else:
            self._warp_components(pull_batch, self.displacement, -self.step, self._spare)
            self._spare[self.layout.interior] -= self.step * self.velocity[self.layout.interior]
        self.layout.fill_halo(self._spare)
        self.displacement, self._spare = self._spare, self.displacement

    def _is_short(self) -> bool:
        """Tell whether no component of v/T is longer than a voxel, as the fast loops require."""
        longest = max(self.velocity.max(), -self.velocity.min())
        return bool(longest * self.step <= 1)

    @staticmethod
    def _conserved_total(fields: Array, greens_function: Array) -> Array:
        """Return the sum of v over space, (d, lane), which stays the same along the path.

        A push conserves totals, and the Jacobian adds sum(d_j v . L v) = 0, since differences are
        antisymmetric and commute with L. In float32 it must be kept, not recomputed: G would
        multiply the rounding errors of the total of u by 1/w0.
        """
        space = tuple(range(2, fields.ndim))
        is_penalised = bool(greens_function[0].any())  # w0 > 0; if not, G removes the total
        total: NDArray[np.float64] = fields.sum(axis=space, dtype=np.float64)
        return np.asarray(total.T * is_penalised)

    def _apply(self, symbol: Array, block: Array, total: Array | None = None) -> Array:
        fields = block[self.layout.interior]
        if self.by_matrices:
            return apply_real_symbol(fields, symbol, self._scratch, total)
        (result,) = apply_symbol(fields[None], symbol, workers=n_threads(), total=total)
        return np.asarray(result)

    def _run(
        self,
        kernel: Callable[..., None],
        source: Array,
        velocity: Array,
        step: np.floating,
        out: Array,
        *arguments: object,
    ) -> None:
        """Run a kernel of `kernels.steps` over the voxels inside the halo."""
        flat = [block.reshape(len(block), -1) for block in (source, velocity, out)]
        first, last = self.layout.run
        if n_threads() == 1:  # one block of many: nothing to share
            kernel(flat[0], flat[1], step, flat[2], *arguments, first, last)
            return
        run_parallel(
            lambda slab: kernel(
                flat[0], flat[1], step, flat[2], *arguments, first + slab[0], first + slab[1]
            ),
            slabs(last - first, n_threads()),
        )

    def _warp_components(
        self,
        warp: Callable[[Array, Array], Array],
        source: Array,
        step: np.floating,
        out: Array,
    ) -> None:
        """Pull or push by any step * v, one component at a time, which takes less memory."""
        displacement = np.ascontiguousarray(self.layout.unload(self.velocity) * step)
        for i in range(len(source)):
            images = np.ascontiguousarray(self.layout.unload(source[i : i + 1]))
            out[i : i + 1][self.layout.interior] = np.moveaxis(warp(images, displacement), 0, -1)
