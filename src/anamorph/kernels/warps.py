"""Warps: multilinear pulling and pushing by any displacement, on a periodic grid.

A row of voxels is located first, axis by axis and without branches, so that the loop vectorises;
reading from (or adding to) the 2^d grid points around each voxel is all that is left per voxel.
The image that is read (or added to) has a halo of one voxel at the far end of each axis, so that
the grid points around a voxel are always at the same distances in memory.

Images are given as (image, channel, voxel), displacements as (image, axis, voxel), with the shape
of the grid beside them.
"""

from __future__ import annotations

import math

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, kernel, per_voxel


def with_far_halo(images: Array) -> Array:
    """Return images (N, C, *space) with a halo at the far end of each axis, as (N, C, voxel)."""
    space = images.shape[2:]
    padded = np.empty((*images.shape[:2], n_voxels_with_far_halo(space)), images.dtype)
    _copy_rows(images.reshape(*images.shape[:2], -1), padded, space)
    return padded


def add_folded(padded: Array, out: Array) -> None:
    """Add (N, C, voxel) with halo to out (N, C, *space): the transpose of `with_far_halo`."""
    _fold_rows(padded, out.reshape(*out.shape[:2], -1), out.shape[2:])


def n_voxels_with_far_halo(space: Shape) -> int:
    """Return the number of voxels of a grid with a halo at the far end of each axis."""
    return math.prod(n + 1 for n in space)


@per_voxel
def _row_without_halo(row: int, shape: Shape) -> int:
    """Return which row of the grid a row of the grid with halo repeats."""
    inside, factor = 0, 1
    for axis in range(len(shape) - 2, -1, -1):
        position = row % (shape[axis] + 1)
        row //= shape[axis] + 1
        inside += factor * (0 if position == shape[axis] else position)
        factor *= shape[axis]
    return inside


@kernel
def _copy_rows(images: Array, padded: Array, shape: Shape) -> None:
    nx = shape[len(shape) - 1]
    for row in range(padded.shape[2] // (nx + 1)):
        first = row * (nx + 1)
        source = _row_without_halo(row, shape) * nx
        for n in range(images.shape[0]):
            for c in range(images.shape[1]):
                line = images[n, c, source : source + nx]
                copy = padded[n, c, first : first + nx + 1]
                for x in range(nx):
                    copy[x] = line[x]
                copy[nx] = line[0]


@kernel
def _fold_rows(padded: Array, images: Array, shape: Shape) -> None:
    nx = shape[len(shape) - 1]
    for row in range(padded.shape[2] // (nx + 1)):
        first = row * (nx + 1)
        target = _row_without_halo(row, shape) * nx
        for n in range(images.shape[0]):
            for c in range(images.shape[1]):
                line = images[n, c, target : target + nx]
                copy = padded[n, c, first : first + nx + 1]
                for x in range(nx):
                    line[x] += copy[x]
                line[0] += copy[nx]


@per_voxel
def locate(origin: float, displacement: float, length: float) -> tuple[float, float]:
    """Return the grid point before origin + displacement on a circle, and how far behind it is.

    All numbers are floats of one type, `origin`, `length` and the grid point whole ones. What is
    not finite is put at grid point 0, with a fraction that makes the result NaN.
    """
    zero = length - length  # of the type of length, where a plain 0 would be an integer
    whole = np.floor(displacement)
    point = origin + whole
    point -= length * np.floor(point / length)
    point = point if point >= zero else zero
    point = point if point < length else zero
    return point, displacement - whole


@per_voxel
def locate_row(
    displacement: Array, shape: Shape, row: int, index: IntArray, fraction: Array
) -> None:
    """Locate the voxels of one row.

    Parameters
    ----------
    displacement : (d, voxel)
    shape : tuple of d lengths
    row : which of the rows (lines along the last axis) of the grid
    index : (nx,) integers, filled with places in an image with a far halo
    fraction : (d, nx), filled with the distances beyond the grid points
    """
    number = fraction.dtype.type
    n_dims = displacement.shape[0]
    nx = fraction.shape[1]
    first = row * nx
    stride = np.int32(1)
    step = displacement[n_dims - 1, first : first + nx]
    part = fraction[n_dims - 1]
    for x in range(nx):
        point, part[x] = locate(number(np.int32(x)), step[x], number(nx))
        index[x] = np.int32(point)
    for axis in range(n_dims - 2, -1, -1):
        stride *= np.int32(shape[axis + 1] + 1)
        origin = number(row % shape[axis])
        row //= shape[axis]
        length = number(shape[axis])
        step = displacement[axis, first : first + nx]
        part = fraction[axis]
        for x in range(nx):
            point, part[x] = locate(origin, step[x], length)
            index[x] += stride * np.int32(point)


@per_voxel
def gather_2d(image: Array, i: np.uintp, row: np.uintp, fy: float, fx: float) -> float:
    """Interpolate between four voxels of a plane, the first at place i; `row` is its stride."""
    upper = image[i] + fx * (image[i + np.uintp(1)] - image[i])
    i += row
    lower = image[i] + fx * (image[i + np.uintp(1)] - image[i])
    return upper + fy * (lower - upper)


@per_voxel
def scatter_2d(
    image: Array, i: np.uintp, row: np.uintp, fy: float, fx: float, value: float
) -> None:
    """Spread a value over four voxels of a plane: the transpose of `gather_2d`."""
    lower = fy * value
    upper = value - lower
    image[i] += upper - fx * upper
    image[i + np.uintp(1)] += fx * upper
    i += row
    image[i] += lower - fx * lower
    image[i + np.uintp(1)] += fx * lower


@per_voxel
def strides(shape: Shape) -> tuple[np.uintp, np.uintp]:
    """Return the distances between rows and between planes of an image with a far halo."""
    row = shape[len(shape) - 1] + 1
    return np.uintp(row), np.uintp(row * (shape[len(shape) - 2] + 1))


@kernel
def pull_rows(
    images: Array, displacement: Array, out: Array, shape: Shape, start: int, stop: int
) -> None:
    """Pull images at id + displacement: out(x) = image(x + displacement(x)).

    images : (N, C, voxel) with far halo; displacement : (N, d, voxel); out : (N, C, voxel).
    start, stop : which rows to compute, counted through all images.
    """
    nx = shape[len(shape) - 1]
    index = np.empty(nx, np.int32)
    fraction = np.empty((len(shape), nx), displacement.dtype)
    row, plane = strides(shape)
    n_rows = out.shape[2] // nx
    for r in range(start, stop):
        n = r // n_rows
        locate_row(displacement[n], shape, r % n_rows, index, fraction)
        first = r % n_rows * nx
        for c in range(out.shape[1]):
            image = images[n, c]
            line = out[n, c, first : first + nx]
            if len(shape) == 2:
                fy, fx = fraction[0], fraction[1]
                for x in range(nx):
                    i = np.uintp(index[x])
                    line[x] = gather_2d(image, i, row, fy[x], fx[x])
            else:
                fz, fy, fx = fraction[0], fraction[1], fraction[2]
                for x in range(nx):
                    i = np.uintp(index[x])
                    below = gather_2d(image, i, row, fy[x], fx[x])
                    above = gather_2d(image, i + plane, row, fy[x], fx[x])
                    line[x] = below + fz[x] * (above - below)


@kernel
def push_rows(
    images: Array, displacement: Array, out: Array, shape: Shape, start: int, stop: int
) -> None:
    """Add images pushed to id + displacement, the transpose of `pull_rows`, to `out`.

    images : (N, C, voxel); displacement : (N, d, voxel); out : (N, C, voxel) with far halo.
    start, stop : which rows to push, counted through all images.
    """
    nx = shape[len(shape) - 1]
    index = np.empty(nx, np.int32)
    fraction = np.empty((len(shape), nx), displacement.dtype)
    row, plane = strides(shape)
    n_rows = images.shape[2] // nx
    for r in range(start, stop):
        n = r // n_rows
        locate_row(displacement[n], shape, r % n_rows, index, fraction)
        first = r % n_rows * nx
        for c in range(out.shape[1]):
            image = out[n, c]
            line = images[n, c, first : first + nx]
            if len(shape) == 2:
                fy, fx = fraction[0], fraction[1]
                for x in range(nx):
                    i = np.uintp(index[x])
                    scatter_2d(image, i, row, fy[x], fx[x], line[x])
            else:
                fz, fy, fx = fraction[0], fraction[1], fraction[2]
                for x in range(nx):
                    i = np.uintp(index[x])
                    above = fz[x] * line[x]
                    scatter_2d(image, i, row, fy[x], fx[x], line[x] - above)
                    scatter_2d(image, i + plane, row, fy[x], fx[x], above)
