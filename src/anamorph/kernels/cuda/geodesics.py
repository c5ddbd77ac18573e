"""Paths of images on a GPU: the operations that `geometry.shooting` takes steps with.

A step is half a dozen short kernels. Packing a kernel's arguments takes longer than launching it,
and is done before the first step; steps alternate between two fields, hence it is done twice.
"""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from anamorph.kernels.cuda import steps
from anamorph.kernels.cuda.launch import flattened
from anamorph.kernels.cuda.places import as_divisor
from anamorph.kernels.cuda.spectrum import SymbolProduct, empty_fields

_FEWEST_THREADS = 2**17  # that keep a GPU busy
_VOXELS_PER_WORKER = 16  # of images with long steps


class DevicePath:
    """The path of some images: their velocity, their momentum and the warp so far.

    Parameters
    ----------
    fields : (N, d, *space)
        Initial velocities.
    operator, greens_function : (packed d x d, frequency)
        The symbols of L and of G, divided by the number of voxels.
    has_mean : bool
        Whether the mean over space of the velocity is penalised and stays the same along the path.
        If not, it is zero.
    n_steps : int
        T.
    out : (N, d, *space)
        Holds the warp at the end.
    """

    def __init__(
        self,
        fields: Any,
        operator: Any,
        greens_function: Any,
        has_mean: bool,
        n_steps: int,
        out: Any,
    ) -> None:
        self._n_images, d, *space = fields.shape
        self._n_voxels = math.prod(space)
        self._shape = tuple(map(as_divisor, space))
        self._step = np.float32(1 / n_steps)
        self._velocity, self._momentum = (
            empty_fields(self._n_images, d, tuple(space)) for _ in range(2)
        )
        # Steps alternate between two fields, and between two notes on which images take long ones.
        warps = out, cupy.empty_like(out)
        self._warps = warps if n_steps % 2 else warps[::-1]
        self._is_long = cupy.zeros((2, self._n_images), np.int32)
        steps.begin_path(
            self._n_images * self._n_voxels,
            *(flattened(fields), -self._step, flattened(self._velocity), flattened(self._warps[0])),
            *(self._is_long[0], self._shape, as_divisor(self._n_voxels)),
        )
        mean = cupy.empty((self._n_images, d), np.float32)
        SymbolProduct(self._velocity, operator, self._momentum, mean, mean_factor=float(has_mean))()
        self._multiply_greens_function = SymbolProduct(
            self._momentum, greens_function, self._velocity, mean, is_mean_known=True
        )
        self._kernels = [self._prepare(*order) for order in ((0, 1), (1, 0))[: n_steps - 1]]
        self._n_taken = 0

    @property
    def velocity(self) -> Any:
        """The velocity at the current end of the path, (N, d, *space)."""
        return self._velocity[: self._n_images]

    def carry_momentum(self) -> None:
        """Set u = push(D(id - v/T)' u, id + v/T)."""
        for launch in self._kernels[self._n_taken % 2][:3]:
            launch()

    def update_velocity(self) -> None:
        """Set v = G u."""
        self._multiply_greens_function()

    def extend_warp(self) -> None:
        """Set psi = psi o (id - v/T)."""
        self._kernels[self._n_taken % 2][3]()
        self._n_taken += 1

    def _prepare(self, now: int, next_: int) -> tuple[Any, ...]:
        """Return the launches of a step that takes the warp from one field to the other."""
        n_images, n_voxels, shape = self._n_images, self._n_voxels, self._shape
        velocity, momentum = flattened(self._velocity), flattened(self._momentum)
        warp, spare = flattened(self._warps[now]), flattened(self._warps[next_])
        is_long, is_long_next = self._is_long[now], self._is_long[next_]
        voxels = shape, as_divisor(n_voxels)
        turn = steps.transposed_jacobian_step.prepare(
            n_images * n_voxels, momentum, velocity, -self._step, spare, n_images, *voxels
        )
        length = self._velocity.shape[2]
        run = int(np.clip(n_images * n_voxels // _FEWEST_THREADS, 2, length))
        n_runs, n_lines = -(-length // run), n_voxels // length
        push_short = steps.push_short_steps.prepare(
            n_images * n_runs * n_lines,
            *(spare, velocity, self._step, is_long, is_long_next, momentum),
            *(shape, as_divisor(n_lines), as_divisor(n_runs), run),
        )
        n_workers = -(-n_voxels // _VOXELS_PER_WORKER)
        not_flat = [
            fields.reshape(*fields.shape[:2], n_voxels)
            for fields in (self._warps[next_], self._velocity, self._momentum)
        ]
        push_long = steps.push_long_steps.prepare(
            n_images * n_workers,
            *(*not_flat[:2], self._step, is_long, not_flat[2], shape, as_divisor(n_workers)),
        )
        compose = steps.compose_step.prepare(
            n_images * n_voxels, warp, velocity, -self._step, spare, is_long_next, *voxels
        )
        return turn, push_short, push_long, compose
