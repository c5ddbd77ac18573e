"""Warps: multilinear pull and push by any displacement, on a periodic grid.

Kernels locate some hundreds of voxels at a time, axis by axis, in loops without branches that
vectorise. Reading from (or adding to) the 2^d grid points around each voxel is all that is left.

Images are (image, channel, voxel), displacements (image, axis, voxel); the shape of the grid is an
argument of its own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, formula, kernel
from anamorph.kernels.formulas.interpolation import (
    between,
    between_four,
    shared,
    shared_by_four,
    slopes_between_four,
)

_PIECE = 512  # voxels at a time: what is known of them stays in the first-level cache


@lru_cache(maxsize=8)
def coordinates_of_voxels(space: Shape, dtype: np.dtype[np.floating]) -> Array:
    """Return the coordinates of the voxels of a grid, (d, voxel)."""
    coordinates = np.indices(space).reshape(len(space), -1).astype(dtype)
    coordinates.flags.writeable = False  # all callers with the same grid share it
    return coordinates


@formula
def locate(origin: float, displacement: float, length: float) -> tuple[float, float]:
    """Return the grid point before origin + displacement on a circle, and the distance from it.

    All numbers are floats of one type, which lets the loop vectorise; `origin`, `length` and the
    grid point are whole numbers. A displacement that is not finite leads to grid point 0 and to a
    fraction that makes the result NaN.
    """
    zero = length - length  # of the type of length, where a plain 0 would be an integer
    whole = np.floor(displacement)
    point = origin + whole
    point -= length * np.floor(point / length)
    point = point if point >= zero else zero
    point = point if point < length else zero
    return point, displacement - whole


@formula
def locate_piece(
    displacement: Array,
    coordinates: Array,
    shape: Shape,
    first: int,
    near: IntArray,
    far: IntArray,
    fraction: Array,
) -> None:
    """Locate the voxels from `first` on.

    Parameters
    ----------
    displacement, coordinates : (d, voxel)
        How far from voxels to look, and the coordinates of voxels.
    shape : tuple of d lengths
    near, far : (d, n) integers
        Filled with what the grid points before and after contribute to the place in memory: the
        sum over axes of one or the other is the place of a corner of the cell.
    fraction : (d, n)
        Filled with the distances beyond the grid points before.
    """
    n_dims, n = fraction.shape
    stride = 1
    for axis in range(n_dims - 1, -1, -1):
        length = fraction.dtype.type(shape[axis])
        # Along an axis of one voxel both points are the same one, which then counts once.
        factor = fraction.dtype.type(min(1, shape[axis] - 1))
        step, last = np.int32(stride), np.int32(stride * (shape[axis] - 1))
        origin = coordinates[axis, first : first + n]
        distance = displacement[axis, first : first + n]
        before, behind, part = near[axis], far[axis], fraction[axis]
        for x in range(n):
            point, beyond = locate(origin[x], distance[x], length)
            before[x] = step * np.int32(point)
            part[x] = factor * beyond
        for x in range(n):
            behind[x] = before[x] + step if before[x] < last else np.int32(0)
        stride *= shape[axis]


@formula
def gather(
    image: Array, near: IntArray, far: IntArray, fraction: Array, x: int, shape: Shape
) -> float:
    """Interpolate an image at voxel x of a piece: see `locate_piece`."""
    y, z = len(shape) - 2, len(shape) - 3
    left, right, fx = np.uintp(near[y + 1, x]), np.uintp(far[y + 1, x]), fraction[y + 1, x]
    upper, lower, fy = np.uintp(near[y, x]), np.uintp(far[y, x]), fraction[y, x]
    if len(shape) == 2:
        return _gather_2d(image, upper, lower, left, right, fy, fx)
    front, back, fz = np.uintp(near[z, x]), np.uintp(far[z, x]), fraction[z, x]
    value = _gather_2d(image, front + upper, front + lower, left, right, fy, fx)
    behind = _gather_2d(image, back + upper, back + lower, left, right, fy, fx)
    return between(value, behind, fz)


@formula
def _gather_2d(
    image: Array,
    upper: np.uintp,
    lower: np.uintp,
    left: np.uintp,
    right: np.uintp,
    fy: float,
    fx: float,
) -> float:
    return between_four(
        image[upper + left], image[upper + right], image[lower + left], image[lower + right], fy, fx
    )


@formula
def gather_slopes(
    image: Array, near: IntArray, far: IntArray, fraction: Array, x: int, shape: Shape
) -> tuple[float, float, float]:
    """Differentiate `gather` with respect to z, y and x; in planes the first is 0."""
    y, z = len(shape) - 2, len(shape) - 3
    left, right, fx = np.uintp(near[y + 1, x]), np.uintp(far[y + 1, x]), fraction[y + 1, x]
    upper, lower, fy = np.uintp(near[y, x]), np.uintp(far[y, x]), fraction[y, x]
    if len(shape) == 2:
        _, slope_y, slope_x = _gather_slopes_2d(image, upper, lower, left, right, fy, fx)
        return slope_y - slope_y, slope_y, slope_x
    front, back, fz = np.uintp(near[z, x]), np.uintp(far[z, x]), fraction[z, x]
    value, slope_y, slope_x = _gather_slopes_2d(
        image, front + upper, front + lower, left, right, fy, fx
    )
    behind, behind_y, behind_x = _gather_slopes_2d(
        image, back + upper, back + lower, left, right, fy, fx
    )
    return behind - value, between(slope_y, behind_y, fz), between(slope_x, behind_x, fz)


@formula
def _gather_slopes_2d(
    image: Array,
    upper: np.uintp,
    lower: np.uintp,
    left: np.uintp,
    right: np.uintp,
    fy: float,
    fx: float,
) -> tuple[float, float, float]:
    a, b = image[upper + left], image[upper + right]
    c, d = image[lower + left], image[lower + right]
    slope_y, slope_x = slopes_between_four(a, b, c, d, fy, fx)
    return between_four(a, b, c, d, fy, fx), slope_y, slope_x


@formula
def scatter(
    image: Array,
    near: IntArray,
    far: IntArray,
    fraction: Array,
    x: int,
    shape: Shape,
    value: float,
) -> None:
    """Spread a value over the voxels around voxel x of a piece: the transpose of `gather`."""
    y, z = len(shape) - 2, len(shape) - 3
    left, right, fx = np.uintp(near[y + 1, x]), np.uintp(far[y + 1, x]), fraction[y + 1, x]
    upper, lower, fy = np.uintp(near[y, x]), np.uintp(far[y, x]), fraction[y, x]
    if len(shape) == 2:
        _scatter_2d(image, upper, lower, left, right, fy, fx, value)
    else:
        front, back, fz = np.uintp(near[z, x]), np.uintp(far[z, x]), fraction[z, x]
        _scatter_3d(image, front, back, upper, lower, left, right, fz, fy, fx, value)


# All grid points are read before one is written: not knowing that they differ, a processor would
# wait for each. Along an axis of one voxel they do not differ: the last one written, which is the
# first one read, then holds the right value.


@formula
def _scatter_2d(
    image: Array,
    upper: np.uintp,
    lower: np.uintp,
    left: np.uintp,
    right: np.uintp,
    fy: float,
    fx: float,
    value: float,
) -> None:
    to_a, to_b, to_c, to_d = shared_by_four(value, fy, fx)
    a = image[upper + left] + to_a
    b = image[upper + right] + to_b
    c = image[lower + left] + to_c
    d = image[lower + right] + to_d
    image[lower + right] = d
    image[lower + left] = c
    image[upper + right] = b
    image[upper + left] = a


@formula
def _scatter_3d(
    image: Array,
    front: np.uintp,
    back: np.uintp,
    upper: np.uintp,
    lower: np.uintp,
    left: np.uintp,
    right: np.uintp,
    fz: float,
    fy: float,
    fx: float,
    value: float,
) -> None:
    i, j, k, m = front + upper, front + lower, back + upper, back + lower
    ahead, behind = shared(value, fz)
    to_a, to_b, to_c, to_d = shared_by_four(ahead, fy, fx)
    to_e, to_f, to_g, to_h = shared_by_four(behind, fy, fx)
    a = image[i + left] + to_a
    b = image[i + right] + to_b
    c = image[j + left] + to_c
    d = image[j + right] + to_d
    e = image[k + left] + to_e
    f = image[k + right] + to_f
    g = image[m + left] + to_g
    h = image[m + right] + to_h
    image[m + right] = h
    image[m + left] = g
    image[k + right] = f
    image[k + left] = e
    image[j + right] = d
    image[j + left] = c
    image[i + right] = b
    image[i + left] = a


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

    images, out : (N, C, voxel); displacement : (N, d, voxel); coordinates : (d, voxel).
    start, stop : which voxels of each image to compute.
    """
    places = np.empty((2, len(shape), _PIECE), np.int32)
    fractions = np.empty((len(shape), _PIECE), displacement.dtype)
    for n in range(out.shape[0]):
        for first in range(start, stop, _PIECE):
            size = min(_PIECE, stop - first)
            near, far, fraction = places[0, :, :size], places[1, :, :size], fractions[:, :size]
            locate_piece(displacement[n], coordinates, shape, first, near, far, fraction)
            for c in range(out.shape[1]):
                image, line = images[n, c], out[n, c, first : first + size]
                for x in range(size):
                    line[x] = gather(image, near, far, fraction, x, shape)


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
    """Set `out` to images pushed to id + displacement: the transpose of `pull_voxels`.

    images, out : (N, C, voxel); displacement : (N, d, voxel); coordinates : (d, voxel).
    start, stop : which voxels of each image to push.
    """
    places = np.empty((2, len(shape), _PIECE), np.int32)
    fractions = np.empty((len(shape), _PIECE), displacement.dtype)
    for n in range(out.shape[0]):
        out[n] = 0
        for first in range(start, stop, _PIECE):
            size = min(_PIECE, stop - first)
            near, far, fraction = places[0, :, :size], places[1, :, :size], fractions[:, :size]
            locate_piece(displacement[n], coordinates, shape, first, near, far, fraction)
            for c in range(out.shape[1]):
                image, line = out[n, c], images[n, c, first : first + size]
                for x in range(size):
                    scatter(image, near, far, fraction, x, shape, line[x])


@kernel
def slope_voxels(
    images: Array,
    weights: Array,
    displacement: Array,
    coordinates: Array,
    out: Array,
    shape: Shape,
    start: int,
    stop: int,
) -> None:
    """Fill in the derivative of sum(weights * pulled images) with respect to the displacement.

    images, weights : (N, C, voxel); displacement, out : (N, d, voxel); coordinates : (d, voxel).
    start, stop : which voxels of each image to compute.
    """
    n_dims = len(shape)
    places = np.empty((2, n_dims, _PIECE), np.int32)
    fractions = np.empty((n_dims, _PIECE), displacement.dtype)
    for n in range(out.shape[0]):
        for first in range(start, stop, _PIECE):
            size = min(_PIECE, stop - first)
            near, far, fraction = places[0, :, :size], places[1, :, :size], fractions[:, :size]
            locate_piece(displacement[n], coordinates, shape, first, near, far, fraction)
            out[n, :, first : first + size] = 0
            front = out[n, 0, first : first + size]
            upper, left = (
                out[n, n_dims - 2, first : first + size],
                out[n, n_dims - 1, first : first + size],
            )
            for c in range(images.shape[1]):
                image, line = images[n, c], weights[n, c, first : first + size]
                for x in range(size):
                    along_z, along_y, along_x = gather_slopes(image, near, far, fraction, x, shape)
                    if n_dims == 3:
                        front[x] += line[x] * along_z
                    upper[x] += line[x] * along_y
                    left[x] += line[x] * along_x
