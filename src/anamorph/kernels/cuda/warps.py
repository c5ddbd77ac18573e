"""Warps on a GPU, one thread per voxel.

Threads push onto each other's voxels by atomic additions, whose order is not defined: the last
digits of a push differ from run to run. The shape of a grid is one `places.Divisor` per axis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import DeviceKernel, device_function, device_kernel
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided_quickly,
    find_coordinates,
    multiplied,
    read_length,
    shifted,
    wrapped,
)
from anamorph.kernels.formulas.interpolation import (
    between,
    between_four,
    shared,
    shared_by_four,
    slopes_between_four,
)

_ZERO, _ONE = np.float32(0), np.float32(1)


@device_function
def find_corners(distance, coordinate, stride, axis):
    """Locate a voxel that is displaced along an axis of some stride.

    Returns what the grid points before and after contribute to the place in memory, and the
    distance from the first. Grid points are counted in 32 bits; processors count in floats.
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
    c, d = image[shifted(lower, left)], image[shifted(lower, right)]
    return between_four(a, b, c, d, fy, fx)


@device_function
def interpolate_3d(image, upper, lower, around):
    """Return an image between eight of its voxels.

    around : (front, back, left, right, fz, fy, fx)
    """
    front, back, left, right, fz, fy, fx = around
    ahead = interpolate_2d(image, added(upper, front), added(lower, front), left, right, fy, fx)
    behind = interpolate_2d(image, added(upper, back), added(lower, back), left, right, fy, fx)
    return between(ahead, behind, fz)


@device_function
def add_2d(plane, upper, lower, left, right, fy, fx, value):
    """Spread a value over four voxels: the transpose of `interpolate_2d`."""
    to_a, to_b, to_c, to_d = shared_by_four(value, fy, fx)
    cuda.atomic.add(plane, shifted(upper, left), to_a)
    cuda.atomic.add(plane, shifted(upper, right), to_b)
    cuda.atomic.add(plane, shifted(lower, left), to_c)
    cuda.atomic.add(plane, shifted(lower, right), to_d)


@device_function
def slopes_2d(image, upper, lower, left, right, fy, fx):
    """Return the derivatives of `interpolate_2d` with respect to fy and fx."""
    a, b = image[shifted(upper, left)], image[shifted(upper, right)]
    c, d = image[shifted(lower, left)], image[shifted(lower, right)]
    return slopes_between_four(a, b, c, d, fy, fx)


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
    upper, lower, fy = find_corners(
        scale * displacement[n, last - 1, voxel], y, nx, shape[last - 1]
    )
    if len(shape) == 2:
        for c in range(out.shape[1]):
            value = images[n, c, voxel]
            add_2d(out[n, c], upper, lower, left, right, fy, fx, value)
    else:
        front, back, fz = find_corners(
            scale * displacement[n, 0, voxel], z, multiplied(nx, ny), shape[0]
        )
        for c in range(out.shape[1]):
            ahead, behind = shared(images[n, c, voxel], fz)
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


@device_kernel
def _slope_voxels(images, weights, displacement, out, shape, n_voxels):
    """Differentiate one voxel of one image with respect to the displacement there."""
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    last = len(shape) - 1
    nx, ny = read_length(shape[last]), read_length(shape[last - 1])
    z, y, x = find_coordinates(voxel, shape)
    left, right, fx = find_corners(displacement[n, last, voxel], x, 1, shape[last])
    upper, lower, fy = find_corners(displacement[n, last - 1, voxel], y, nx, shape[last - 1])
    along_z, along_y, along_x = _ZERO, _ZERO, _ZERO
    if len(shape) == 2:
        for c in range(images.shape[1]):
            weight, image = weights[n, c, voxel], images[n, c]
            slope_y, slope_x = slopes_2d(image, upper, lower, left, right, fy, fx)
            along_y += weight * slope_y
            along_x += weight * slope_x
    else:
        front, back, fz = find_corners(displacement[n, 0, voxel], z, multiplied(nx, ny), shape[0])
        front_upper, front_lower = added(front, upper), added(front, lower)
        back_upper, back_lower = added(back, upper), added(back, lower)
        for c in range(images.shape[1]):
            weight, image = weights[n, c, voxel], images[n, c]
            ahead = interpolate_2d(image, front_upper, front_lower, left, right, fy, fx)
            behind = interpolate_2d(image, back_upper, back_lower, left, right, fy, fx)
            ahead_y, ahead_x = slopes_2d(image, front_upper, front_lower, left, right, fy, fx)
            behind_y, behind_x = slopes_2d(image, back_upper, back_lower, left, right, fy, fx)
            along_z += weight * (behind - ahead)
            along_y += weight * between(ahead_y, behind_y, fz)
            along_x += weight * between(ahead_x, behind_x, fz)
        out[n, 0, voxel] = along_z
    out[n, last - 1, voxel] = along_y
    out[n, last, voxel] = along_x


def slope_voxels(
    images: Any, weights: Any, displacement: Any, out: Any, space: tuple[int, ...]
) -> None:
    """Fill in the derivative of sum(weights * pulled images) with respect to the displacement.

    images, weights : (N, C, voxel); displacement, out : (N, d, voxel)
    """
    n_images, _, n_voxels = images.shape
    shape = tuple(map(as_divisor, space))
    _slope_voxels(
        n_images * n_voxels, images, weights, displacement, out, shape, as_divisor(n_voxels)
    )


def _for_each_voxel(
    kernel: DeviceKernel, images: Any, displacement: Any, out: Any, space: tuple[int, ...]
) -> None:
    n_images, _, n_voxels = images.shape
    shape = tuple(map(as_divisor, space))
    kernel(n_images * n_voxels, images, displacement, out, shape, as_divisor(n_voxels))
