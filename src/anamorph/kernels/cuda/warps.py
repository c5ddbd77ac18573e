"""Warps on a GPU: the twin of `kernels.warps`, one thread per voxel.

Threads push onto each other's voxels by atomic additions, whose order is not defined: the last
digits of a push differ from run to run.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide, index

_ONE = np.float32(1)


@device_function
def corners(distance, coordinate, stride, length):
    """Locate a voxel that is displaced along an axis of some stride and length.

    Returns what the grid points before and behind contribute to the place in memory, and how far
    beyond the first it lies.
    """
    whole = math.floor(distance)
    place = coordinate + np.int64(whole)
    if place < 0 or place >= length:
        place %= length
    behind = place + 1 if place + 1 < length else 0
    return index(place * stride), index(behind * stride), distance - np.float32(whole)


@device_function
def interpolate_2d(image, n, c, upper, lower, left, right, fy, fx):
    """Return an image between four of its voxels."""
    a, b = image[n, c, upper + left], image[n, c, upper + right]
    p, q = image[n, c, lower + left], image[n, c, lower + right]
    above = a + fx * (b - a)
    below = p + fx * (q - p)
    return above + fy * (below - above)


@device_function
def add_2d(image, n, c, upper, lower, left, right, fy, fx, value):
    """Spread a value over four voxels: the transpose of `interpolate_2d`."""
    below = fy * value
    above = value - below
    cuda.atomic.add(image, (n, c, upper + left), above - fx * above)
    cuda.atomic.add(image, (n, c, upper + right), fx * above)
    cuda.atomic.add(image, (n, c, lower + left), below - fx * below)
    cuda.atomic.add(image, (n, c, lower + right), fx * below)


@device_kernel
def pull_voxels(images, displacement, out, shape):
    """Set out(x) = image(x + displacement(x)).

    images, out : (N, C, voxel); displacement : (N, d, voxel); one thread per image and voxel.
    """
    n_voxels = out.shape[2]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    y, nx, ny = len(shape) - 2, shape[len(shape) - 1], shape[len(shape) - 2]
    row, x = divide(voxel, nx)
    plane, row = divide(row, ny)
    left, right, fx = corners(displacement[n, y + 1, voxel], x, 1, nx)
    upper, lower, fy = corners(displacement[n, y, voxel], row, nx, ny)
    if len(shape) == 2:
        for c in range(out.shape[1]):
            out[n, c, voxel] = interpolate_2d(images, n, c, upper, lower, left, right, fy, fx)
    else:
        front, back, fz = corners(displacement[n, 0, voxel], plane, nx * ny, shape[0])
        for c in range(out.shape[1]):
            value = interpolate_2d(images, n, c, front + upper, front + lower, left, right, fy, fx)
            behind = interpolate_2d(images, n, c, back + upper, back + lower, left, right, fy, fx)
            out[n, c, voxel] = value + fz * (behind - value)


@device_function
def push_voxel(images, displacement, scale, out, shape, n, voxel):
    """Add one voxel of an image to those around x + scale * displacement(x)."""
    y, nx, ny = len(shape) - 2, shape[len(shape) - 1], shape[len(shape) - 2]
    row, x = divide(voxel, nx)
    plane, row = divide(row, ny)
    left, right, fx = corners(scale * displacement[n, y + 1, voxel], x, 1, nx)
    upper, lower, fy = corners(scale * displacement[n, y, voxel], row, nx, ny)
    if len(shape) == 2:
        for c in range(out.shape[1]):
            value = images[n, c, voxel]
            add_2d(out, n, c, upper, lower, left, right, fy, fx, value)
    else:
        front, back, fz = corners(scale * displacement[n, 0, voxel], plane, nx * ny, shape[0])
        for c in range(out.shape[1]):
            value = images[n, c, voxel]
            behind = fz * value
            ahead = value - behind
            add_2d(out, n, c, front + upper, front + lower, left, right, fy, fx, ahead)
            add_2d(out, n, c, back + upper, back + lower, left, right, fy, fx, behind)


@device_kernel
def push_voxels(images, displacement, out, shape):
    """Add images pushed to id + displacement, the transpose of `pull_voxels`, to `out`.

    images, out : (N, C, voxel); displacement : (N, d, voxel); one thread per image and voxel.
    """
    n_voxels = out.shape[2]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n < out.shape[0]:
        push_voxel(images, displacement, _ONE, out, shape, n, voxel)
