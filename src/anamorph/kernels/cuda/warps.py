"""Warps on a GPU: the twin of `kernels.warps`, one thread per voxel.

Threads push onto each other's voxels by atomic additions, whose order is not defined: the last
digits of a push differ from run to run.

The shape of a grid is handed over as one `places.Divisor` for each axis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import DeviceKernel, device_function, device_kernel
from anamorph.kernels.cuda.places import (
    find_coordinates,
    divided_quickly,
    as_divisor,
    shifted,
    read_length,
    added,
    multiplied,
    wrapped,
)

_ONE = np.float32(1)


@device_function
def find_corners(distance, coordinate, stride, axis):
    """Locate a voxel that is displaced along an axis of some stride.

    Returns what the grid points before and behind contribute to the place in memory, and how far
    beyond the first it lies.
    """
    whole = math.floor(distance)
    place = wrapped(added(coordinate, whole), axis)
    behind = added(place, 1)
    if behind == read_length(axis):
        behind = np.int32(0)
    return multiplied(place, stride), multiplied(behind, stride), distance - np.float32(whole)


@device_function
def interpolate_2d(image, upper, lower, left, right, fy, fx):
    """Return an image between four of its voxels."""
    a, b = image[shifted(upper, left)], image[shifted(upper, right)]
    p, q = image[shifted(lower, left)], image[shifted(lower, right)]
    above = a + fx * (b - a)
    below = p + fx * (q - p)
    return above + fy * (below - above)


@device_function
def interpolate_3d(image, upper, lower, around):
    """Return an image between eight of its voxels.

    around : (front, back, left, right, fz, fy, fx)
    """
    front, back, left, right, fz, fy, fx = around
    ahead = interpolate_2d(image, added(upper, front), added(lower, front), left, right, fy, fx)
    behind = interpolate_2d(image, added(upper, back), added(lower, back), left, right, fy, fx)
    return ahead + fz * (behind - ahead)


@device_function
def add_2d(plane, upper, lower, left, right, fy, fx, value):
    """Spread a value over four voxels: the transpose of `interpolate_2d`."""
    below = fy * value
    above = value - below
    cuda.atomic.add(plane, shifted(upper, left), above - fx * above)
    cuda.atomic.add(plane, shifted(upper, right), fx * above)
    cuda.atomic.add(plane, shifted(lower, left), below - fx * below)
    cuda.atomic.add(plane, shifted(lower, right), fx * below)


@device_kernel
def _pull_voxels(images, displacement, out, shape, n_voxels):
    """Pull one voxel of one image."""
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    last = len(shape) - 1
    nx, ny = read_length(shape[last]), read_length(shape[last - 1])
    z, y, x = find_coordinates(voxel, shape)
    left, right, fx = find_corners(displacement[n, last, voxel], x, 1, shape[last])
    upper, lower, fy = find_corners(displacement[n, last - 1, voxel], y, nx, shape[last - 1])
    if len(shape) == 2:
        for c in range(out.shape[1]):
            out[n, c, voxel] = interpolate_2d(images[n, c], upper, lower, left, right, fy, fx)
    else:
        front, back, fz = find_corners(displacement[n, 0, voxel], z, multiplied(nx, ny), shape[0])
        around = front, back, left, right, fz, fy, fx
        for c in range(out.shape[1]):
            out[n, c, voxel] = interpolate_3d(images[n, c], upper, lower, around)


def pull_voxels(images: Any, displacement: Any, out: Any, space: tuple[int, ...]) -> None:
    """Set out(x) = image(x + displacement(x)).

    images, out : (N, C, voxel); displacement : (N, d, voxel)
    """
    _for_each_voxel(_pull_voxels, images, displacement, out, space)


@device_function
def push_voxel(images, displacement, scale, out, shape, n, voxel):
    """Add one voxel of an image to those around x + scale * displacement(x)."""
    last = len(shape) - 1
    nx, ny = read_length(shape[last]), read_length(shape[last - 1])
    z, y, x = find_coordinates(voxel, shape)
    left, right, fx = find_corners(scale * displacement[n, last, voxel], x, 1, shape[last])
    upper, lower, fy = find_corners(scale * displacement[n, last - 1, voxel], y, nx, shape[last - 1])
    if len(shape) == 2:
        for c in range(out.shape[1]):
            value = images[n, c, voxel]
            add_2d(out[n, c], upper, lower, left, right, fy, fx, value)
    else:
        front, back, fz = find_corners(scale * displacement[n, 0, voxel], z, multiplied(nx, ny), shape[0])
        for c in range(out.shape[1]):
            value = images[n, c, voxel]
            behind = fz * value
            ahead = value - behind
            add_2d(out[n, c], front + upper, front + lower, left, right, fy, fx, ahead)
            add_2d(out[n, c], back + upper, back + lower, left, right, fy, fx, behind)


@device_kernel
def _push_voxels(images, displacement, out, shape, n_voxels):
    """Push one voxel of one image."""
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n < out.shape[0]:
        push_voxel(images, displacement, _ONE, out, shape, n, voxel)


def push_voxels(images: Any, displacement: Any, out: Any, space: tuple[int, ...]) -> None:
    """Set `out` to images pushed to id + displacement: the transpose of `pull_voxels`."""
    out.fill(0)
    _for_each_voxel(_push_voxels, images, displacement, out, space)


def _for_each_voxel(
    kernel: DeviceKernel, images: Any, displacement: Any, out: Any, space: tuple[int, ...]
) -> None:
    n_images, _, n_voxels = images.shape
    shape = tuple(map(as_divisor, space))
    kernel(n_images * n_voxels, images, displacement, out, shape, as_divisor(n_voxels))
