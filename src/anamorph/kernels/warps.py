"""Warps: multilinear pulling and pushing by any displacement, on a periodic grid.

Voxels are located some hundreds at a time, axis by axis and without branches, so that the loop
vectorises; reading from (or adding to) the 2^d grid points around each voxel is all that is left.
The image that is read (or added to) has a halo of one voxel at the far end of each axis, so that
the grid points around a voxel are always at the same distances in memory.

Images are given as (image, channel, voxel), displacements as (image, axis, voxel), with the shape
of the grid beside them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, kernel, per_voxel

_PIECE = 512  # voxels at a time: what is known of them stays in the first-level cache


@lru_cache(maxsize=8)
def coordinates_of_voxels(space: Shape, dtype: np.dtype[np.floating]) -> Array:
    """Return where the voxels of a grid are, (d, voxel)."""
    coordinates = np.indices(space).reshape(len(space), -1).astype(dtype)
    coordinates.flags.writeable = False  # it is shared by all who ask for the same grid
    return coordinates


def with_far_halo(images: Array) -> Array:
    """Return images (N, C, *space) with a halo at the far end of each axis, as (N, C, voxel)."""
    space = images.shape[2:]
    padded = np.empty((*images.shape[:2], n_voxels_with_far_halo(space)), images.dtype)
    _copy_rows(images.reshape(*images.shape[:2], -1), padded, space)
    return padded


def fold_far_halo(padded: Array, out: Array) -> None:
    """Set out (N, C, *space) to (N, C, voxel) with halo folded in: `with_far_halo` transposed."""
    _fold_rows(padded, out.reshape(*out.shape[:2], -1), out.shape[2:])


def n_voxels_with_far_halo(space: Shape) -> int:
    """Return the number of voxels of a grid with a halo at the far end of each axis."""
    return math.prod(n + 1 for n in space)


@per_voxel
def _row_without_halo(row: int, shape: Shape) -> tuple[int, bool]:
    """Return which row of the grid a row of the grid with halo is, or repeats, and if it does."""
    inside, factor, repeats = 0, 1, False
    for axis in range(len(shape) - 2, -1, -1):
        position = row % (shape[axis] + 1)
        row //= shape[axis] + 1
        if position == shape[axis]:
            position, repeats = 0, True
        inside += factor * position
        factor *= shape[axis]
    return inside, repeats


@kernel
def _copy_rows(images: Array, padded: Array, shape: Shape) -> None:
    nx = shape[len(shape) - 1]
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            image, copy = images[n, c], padded[n, c]
            for row in range(copy.size // (nx + 1)):
                first = row * (nx + 1)
                source = _row_without_halo(row, shape)[0] * nx
                line, place = image[source : source + nx], copy[first : first + nx]
                for x in range(nx):
                    place[x] = line[x]
                copy[first + nx] = line[0]


@kernel
def _fold_rows(padded: Array, images: Array, shape: Shape) -> None:
    nx = shape[len(shape) - 1]
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            image, copy = images[n, c], padded[n, c]
            for row in range(copy.size // (nx + 1)):
                first = row * (nx + 1)
                target, repeats = _row_without_halo(row, shape)
                line, addend = image[target * nx : (target + 1) * nx], copy[first : first + nx]
                if repeats:  # a row that came before
                    for x in range(nx):
                        line[x] += addend[x]
                else:
                    for x in range(nx):
                        line[x] = addend[x]
                line[0] += copy[first + nx]


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
def locate_piece(
    displacement: Array,
    coordinates: Array,
    shape: Shape,
    first: int,
    index: IntArray,
    fraction: Array,
) -> None:
    """Locate the voxels from `first` on.

    Parameters
    ----------
    displacement, coordinates : (d, voxel)
        Where voxels are, and how far from there to look.
    shape : tuple of d lengths
    index : (n,) integers, filled with places in an image with a far halo
    fraction : (d, n), filled with the distances beyond the grid points
    """
    n_dims, n = fraction.shape
    stride = np.int32(1)
    for axis in range(n_dims - 1, -1, -1):
        length = fraction.dtype.type(shape[axis])
        origin = coordinates[axis, first : first + n]
        step = displacement[axis, first : first + n]
        part = fraction[axis]
        if axis == n_dims - 1:
            for x in range(n):
                point, part[x] = locate(origin[x], step[x], length)
                index[x] = np.int32(point)
        else:
            for x in range(n):
                point, part[x] = locate(origin[x], step[x], length)
                index[x] += stride * np.int32(point)
        stride *= np.int32(shape[axis] + 1)


@per_voxel
def gather(
    image: Array,
    i: np.uintp,
    row: np.uintp,
    plane: np.uintp,
    fz: float,
    fy: float,
    fx: float,
    shape: Shape,
) -> float:
    """Interpolate between the 2^d voxels of an image around place i (fz is for volumes only)."""
    below = _gather_2d(image, i, row, fy, fx)
    if len(shape) == 2:
        return below
    above = _gather_2d(image, i + plane, row, fy, fx)
    return below + fz * (above - below)


@per_voxel
def _gather_2d(image: Array, i: np.uintp, row: np.uintp, fy: float, fx: float) -> float:
    upper = image[i] + fx * (image[i + np.uintp(1)] - image[i])
    i += row
    lower = image[i] + fx * (image[i + np.uintp(1)] - image[i])
    return upper + fy * (lower - upper)


@per_voxel
def scatter(
    image: Array,
    i: np.uintp,
    row: np.uintp,
    plane: np.uintp,
    fz: float,
    fy: float,
    fx: float,
    shape: Shape,
    value: float,
) -> None:
    """Spread a value over the 2^d voxels of an image around place i: the transpose of `gather`."""
    if len(shape) == 2:
        _scatter_2d(image, i, row, fy, fx, value)
    else:
        above = fz * value
        _scatter_2d(image, i, row, fy, fx, value - above)
        _scatter_2d(image, i + plane, row, fy, fx, above)


@per_voxel
def _scatter_2d(
    image: Array, i: np.uintp, row: np.uintp, fy: float, fx: float, value: float
) -> None:
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
def pull_voxels(
    images: Array,
    displacement: Array,
    coordinates: Array,
    out: Array,
    shape: Shape,
    start: int,
    stop: int,
) -> None:
    """Pull images at id + displacement: out(x) = image(x + displacement(x)).

    images : (N, C, voxel) with far halo; displacement : (N, d, voxel); coordinates : (d, voxel);
    out : (N, C, voxel). start, stop : which voxels of each image to compute.
    """
    n_channels = out.shape[1]
    all_indices = np.empty(_PIECE, np.int32)
    all_fractions = np.empty((len(shape), _PIECE), displacement.dtype)
    row, plane = strides(shape)
    for n in range(out.shape[0]):
        for first in range(start, stop, _PIECE):
            last = min(first + _PIECE, stop)
            index, fraction = all_indices[: last - first], all_fractions[:, : last - first]
            locate_piece(displacement[n], coordinates, shape, first, index, fraction)
            fz, fy, fx = fraction[0], fraction[len(shape) - 2], fraction[len(shape) - 1]
            # Two channels at a time, since they do not wait for each other.
            for c in range(0, n_channels - 1, 2):
                image, other = images[n, c], images[n, c + 1]
                line, other_line = out[n, c, first:last], out[n, c + 1, first:last]
                for x in range(last - first):
                    i = np.uintp(index[x])
                    line[x] = gather(image, i, row, plane, fz[x], fy[x], fx[x], shape)
                    other_line[x] = gather(other, i, row, plane, fz[x], fy[x], fx[x], shape)
            if n_channels % 2:
                image, line = images[n, n_channels - 1], out[n, n_channels - 1, first:last]
                for x in range(last - first):
                    i = np.uintp(index[x])
                    line[x] = gather(image, i, row, plane, fz[x], fy[x], fx[x], shape)


@kernel
def push_voxels(
    images: Array,
    displacement: Array,
    coordinates: Array,
    out: Array,
    shape: Shape,
    start: int,
    stop: int,
) -> None:
    """Add images pushed to id + displacement, the transpose of `pull_voxels`, to `out`.

    images : (N, C, voxel); displacement : (N, d, voxel); coordinates : (d, voxel);
    out : (N, C, voxel) with far halo. start, stop : which voxels of each image to push.
    """
    n_channels = out.shape[1]
    all_indices = np.empty(_PIECE, np.int32)
    all_fractions = np.empty((len(shape), _PIECE), displacement.dtype)
    row, plane = strides(shape)
    for n in range(out.shape[0]):
        for first in range(start, stop, _PIECE):
            last = min(first + _PIECE, stop)
            index, fraction = all_indices[: last - first], all_fractions[:, : last - first]
            locate_piece(displacement[n], coordinates, shape, first, index, fraction)
            fz, fy, fx = fraction[0], fraction[len(shape) - 2], fraction[len(shape) - 1]
            for c in range(0, n_channels - 1, 2):
                image, other = out[n, c], out[n, c + 1]
                line, other_line = images[n, c, first:last], images[n, c + 1, first:last]
                for x in range(last - first):
                    i = np.uintp(index[x])
                    scatter(image, i, row, plane, fz[x], fy[x], fx[x], shape, line[x])
                    scatter(other, i, row, plane, fz[x], fy[x], fx[x], shape, other_line[x])
            if n_channels % 2:
                image, line = out[n, n_channels - 1], images[n, n_channels - 1, first:last]
                for x in range(last - first):
                    i = np.uintp(index[x])
                    scatter(image, i, row, plane, fz[x], fy[x], fx[x], shape, line[x])
