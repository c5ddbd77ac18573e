"""Geodesic shooting on a GPU: the steps of `shooting`, by kernels with one thread per voxel.

Images are shot some at a time, so that what is computed of them takes little memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anamorph.geometry.grid import Array
from anamorph.geometry.operators import apply_symbol_on_device, symbol_on_device
from anamorph.kernels.device import array_namespace, kernels_for

_BYTES_AT_A_TIME = 2**27  # of velocities
_FEWEST_THREADS = 2**19  # that keep a GPU busy
_VOXELS_PER_WORKER = 16  # of images whose steps are too long for the fast way


def shoot_on_device(
    fields: Array,
    penalty: tuple[float, ...],
    voxel_size: tuple[float, ...],
    n_steps: int,
    velocity: Array | None = None,
) -> Array:
    """Return displacements of velocities (N, d, *space) that are on the GPU.

    `velocity`, of the same shape, is filled with the velocity at the end of the path.
    """
    displacement = np.empty_like(fields)
    most = max(1, _BYTES_AT_A_TIME // max(1, 4 * math.prod(fields.shape[1:])))
    for first in range(0, len(fields), most):
        part = slice(first, first + most)
        geodesic = GeodesicOnDevice(fields[part], penalty, voxel_size, n_steps, displacement[part])
        for _ in range(n_steps - 1):
            geodesic.carry_momentum()
            geodesic.update_velocity()
            geodesic.extend_warp()
        if velocity is not None:
            velocity[part] = geodesic.velocity[: len(velocity[part])]
    return displacement


class GeodesicOnDevice:
    """The path of some images: their velocity, their momentum and the warp so far.

    The warp at the end is in `out`, (N, d, *space).
    """

    def __init__(
        self,
        fields: Array,
        penalty: tuple[float, ...],
        voxel_size: tuple[float, ...],
        n_steps: int,
        out: Array,
    ) -> None:
        n_images, d, *space = fields.shape
        self._space = tuple(space)
        self._n_images, self._n_voxels = n_images, math.prod(space)
        self._kernels = kernels_for(fields, "anamorph.kernels.steps")
        operator, self._greens_function = (
            symbol_on_device(penalty, self._space, voxel_size, inverse=inverse)
            for inverse in (False, True)
        )
        self.step = np.float32(1 / n_steps)
        # The sum of v over space stays the same along the path: see `shooting`.
        mean = fields.mean(axis=tuple(range(2, fields.ndim)), dtype=np.float64)
        self._mean = (mean * float(penalty[0] > 0)).astype(np.float32)
        empty = kernels_for(fields, "anamorph.kernels.fourier").empty_fields
        self.velocity, self.momentum = (empty(n_images, d, self._space) for _ in range(2))
        self.velocity[:n_images] = fields
        apply_symbol_on_device(self.velocity, operator, self.momentum, n_images)
        # Each step swaps the two.
        self.displacement, self._spare = out, np.empty_like(out)
        if n_steps % 2 == 0:
            self.displacement, self._spare = self._spare, self.displacement
        # One row per step, so that none has to be cleared.
        self._is_long = array_namespace(fields).zeros((n_steps, n_images), np.int32)
        self._n_taken = 0
        self._run("begin_path", self.velocity, -self.step, self.displacement, self._is_long[0])

    def carry_momentum(self) -> None:
        """Take u to push(D(id - v/T)' u, id + v/T)."""
        self._run(
            "transposed_jacobian_step",
            *(self.momentum, self.velocity, -self.step, self._spare, self._space),
        )
        is_long = self._is_long[self._n_taken]
        arguments = self._spare, self.velocity, self.step, is_long, self.momentum, self._space
        length = self._space[0]
        run = int(np.clip(self._n_images * self._n_voxels // _FEWEST_THREADS, 2, length))
        n_runs = self._n_images * -(-length // run)
        n_lines = self._n_voxels // length
        self._run("push_short_steps", *arguments, run, n_threads=n_runs * n_lines)
        n_workers = -(-self._n_voxels // _VOXELS_PER_WORKER)
        self._run("push_long_steps", *arguments, n_workers, n_threads=self._n_images * n_workers)

    def update_velocity(self) -> None:
        """Set v = G u."""
        apply_symbol_on_device(
            self.momentum, self._greens_function, self.velocity, self._n_images, self._mean
        )

    def extend_warp(self) -> None:
        """Take psi to psi o (id - v/T)."""
        self._n_taken += 1
        self._run(
            "compose_step",
            *(self.displacement, self.velocity, -self.step, self._spare),
            *(self._is_long[self._n_taken], self._space),
        )
        self.displacement, self._spare = self._spare, self.displacement

    def _run(self, name: str, *arguments: Any, n_threads: int | None = None) -> None:
        """Run a kernel of `kernels.cuda.steps`, one thread per image and voxel by default."""
        flat = [
            argument.reshape(*argument.shape[:2], -1)
            if getattr(argument, "ndim", 0) > 1
            else argument
            for argument in arguments
        ]
        getattr(self._kernels, name)(n_threads or self._n_images * self._n_voxels, *flat)
