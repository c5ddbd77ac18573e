"""Jacobians of small steps id - s on a GPU, and what their transposes do: one thread per voxel.

Fields are (N, d, voxel), and the shape of the grid is one `places.Divisor` per axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import (
    as_divisor,
    divided_quickly,
    find_coordinates,
    find_neighbours,
    multiplied,
    read_length,
)
from anamorph.kernels.formulas.steps import turned, twice_derivative, twice_divergence

_ZERO, _HALF = np.float32(0), np.float32(0.5)


@device_function
def _find_along(axis, voxel, shape):
    """Return the voxels before and after one along an axis."""
    last = len(shape) - 1
    z, y, x = find_coordinates(voxel, shape)
    nx, ny = read_length(shape[last]), read_length(shape[last - 1])
    if axis == last:
        return find_neighbours(voxel, x, np.int32(1), nx)
    if axis == last - 1:
        return find_neighbours(voxel, y, nx, ny)
    return find_neighbours(voxel, z, multiplied(nx, ny), read_length(shape[0]))


@device_kernel
def _multiply_transposed_jacobian(steps, momentum, shape, out, n_voxels):
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    for j in range(len(shape)):
        before, after = _find_along(j, voxel, shape)
        total = _ZERO
        for i in range(len(shape)):
            total += twice_derivative(
                steps[n, i, before], steps[n, i, after], momentum[n, i, voxel]
            )
        out[n, j, voxel] = turned(momentum[n, j, voxel], -_HALF, total)


def multiply_transposed_jacobian(
    steps: Any, momentum: Any, space: tuple[int, ...], out: Any
) -> None:
    """Set out = D(id - s)' u: out_j = u_j - sum_i (d_j s_i) u_i."""
    n_images, _, n_voxels = out.shape
    shape = tuple(map(as_divisor, space))
    _multiply_transposed_jacobian(
        n_images * n_voxels, steps, momentum, shape, out, as_divisor(n_voxels)
    )


@device_kernel
def _multiply_jacobian(steps, momentum, adjoint, shape, out, force, n_voxels):
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    for i in range(len(shape)):
        turn, change = _ZERO, _ZERO
        for j in range(len(shape)):
            before, after = _find_along(j, voxel, shape)
            turn += twice_derivative(steps[n, i, before], steps[n, i, after], adjoint[n, j, voxel])
            u_before, u_after = momentum[n, i, before], momentum[n, i, after]
            m_before, m_after = adjoint[n, j, before], adjoint[n, j, after]
            change += twice_divergence(u_before, u_after, m_before, m_after)
        out[n, i, voxel] = turned(adjoint[n, i, voxel], -_HALF, turn)
        force[n, i, voxel] = turned(force[n, i, voxel], _HALF, change)


def multiply_jacobian(
    steps: Any, momentum: Any, adjoint: Any, space: tuple[int, ...], out: Any, force: Any
) -> None:
    """Transpose `multiply_transposed_jacobian` with respect to u, and add what s gets from it."""
    n_images, _, n_voxels = out.shape
    shape = tuple(map(as_divisor, space))
    _multiply_jacobian(
        n_images * n_voxels, steps, momentum, adjoint, shape, out, force, as_divisor(n_voxels)
    )
