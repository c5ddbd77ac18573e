"""Geodesic shooting on a GPU: the steps of `shooting`, for some images at a time."""

from __future__ import annotations

import math

import numpy as np

from anamorph.arrays.namespaces import array_namespace, kernels_for
from anamorph.geometry.grid import Array
from anamorph.geometry.operators import symbol_on_device

_BYTES_AT_A_TIME = 2**27  # of velocities


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
    fields = array_namespace(fields).ascontiguousarray(fields)
    displacement = np.empty_like(fields)
    operator, greens_function = (
        symbol_on_device(penalty, fields.shape[2:], voxel_size, inverse=inverse)
        for inverse in (False, True)
    )
    geodesic_of = kernels_for(fields, "anamorph.kernels.cpu.geodesics").Geodesic
    most = max(1, _BYTES_AT_A_TIME // max(1, 4 * math.prod(fields.shape[1:])))
    for first in range(0, len(fields), most):
        part = slice(first, first + most)
        geodesic = geodesic_of(
            fields[part], operator, greens_function, penalty[0] > 0, n_steps, displacement[part]
        )
        for _ in range(n_steps - 1):
            geodesic.take_step()
        if velocity is not None:
            velocity[part] = geodesic.velocity
    return displacement
