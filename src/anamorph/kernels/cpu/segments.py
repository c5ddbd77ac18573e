"""Segments: eight voxels of a row, warped at once where a displacement is smooth.

Along so short a run the whole parts of a smooth displacement take one or two values per axis. All
voxels of the segment are then interpolated between the same 3 x 3 x 3 offsets from the lowest grid
point that they reach, with weights prod_i max(0, 1 - |distance_i - offset_i|): the weights of
`formulas.interpolation`, written without branches. Most of them are 0, so this is more arithmetic
than between the 8 corners of each voxel's own cell, but each offset is eight neighbours in memory,
and nothing is looked up voxel by voxel.

Where a segment reaches beyond the end of its row, it reads from the seam: a copy of the columns on
both sides of the place where rows begin again.

Images (image, channel, voxel) and displacements (image, axis, voxel) of volumes are given by their
addresses.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, Shape, kernel, per_segment
from anamorph.kernels.cpu.lanes import (
    LANES,
    Address,
    Lanes,
    add_pair,
    address,
    all_below,
    fill,
    first_lanes,
    load,
    lowest,
    rotate,
    store,
    tent,
)

Point = tuple[int, int, int]

_REACH = LANES + 2  # grid points along a row between which a segment is interpolated
_MARGIN = _REACH - 1  # how many of them may be behind the end of the row: one more than LANES
SEAM = 2 * _MARGIN  # columns at the end of rows, and behind them those at the beginning


@per_segment
def find_point(voxel: int, shape: Shape) -> Point:
    """Return the plane, row and column of a voxel."""
    row, column = divmod(voxel, shape[2])
    plane, row = divmod(row, shape[1])
    return plane, row, column


@per_segment
def next_point(point: Point, shape: Shape) -> Point:
    """Return where the next segment begins."""
    plane, row, column = point
    column += LANES
    while column >= shape[2]:
        column -= shape[2]
        row += 1
        if row == shape[1]:
            row = 0
            plane += 1
    return plane, row, column


@kernel
def copy_seams(volume: Array, seams: Array, width: int) -> None:
    """Copy the last and the first columns of a volume side by side, where rows continue.

    volume : (C, voxel); seams : (C, row, SEAM).
    """
    if width < _MARGIN:
        return  # no segments in rows as short as that
    source, target = address(volume), address(seams)
    for row in range(seams.shape[0] * seams.shape[1]):
        first, seam = row * width, row * SEAM
        for begin, place in ((first + width - _MARGIN, seam), (first, seam + _MARGIN)):
            store(target, place, load(source, begin))
            target[place + LANES] = source[begin + LANES]


@kernel
def add_seams(volume: Array, seams: Array, width: int) -> None:
    """Add what was pushed to seams to the columns of a volume: the transpose of `copy_seams`."""
    if width < _MARGIN:
        return
    source, target = address(seams), address(volume)
    for row in range(seams.shape[0] * seams.shape[1]):
        first, seam = row * width, row * SEAM
        for begin, place in ((first + width - _MARGIN, seam), (first, seam + _MARGIN)):
            store(target, begin, load(target, begin) + load(source, place))
            target[begin + LANES] += source[place + LANES]


@per_segment
def pull_segment(
    images: Address,
    seams: Address,
    displacement: Address,
    out: Address,
    shape: Shape,
    n_channels: int,
    n: int,
    first: int,
    point: Point,
) -> bool:
    """Pull the voxels from `first`, at `point`, on if they are a segment; return whether they are.

    images : (N, C, voxel), of which image n is pulled; seams : (C, row, SEAM) of image n.
    """
    is_smooth, front, upper, left, z, y, x = _find_segment(displacement, shape, n, first, point)
    if not is_smooth:
        return False
    n_voxels = shape[2] * shape[1] * shape[0]
    source, start, width = _find_rows(images, n * n_channels * n_voxels, seams, shape[2], left)
    plane_size, size = width * shape[1], width * shape[1] * shape[0]
    n_planes, n_rows = _count_offsets(z), _count_offsets(y)
    x0, x1, x2 = tent(x), tent(x - 1), tent(x - 2)
    is_finite = True
    for c in range(n_channels):
        total = fill(type(images[0])(0))
        plane = front * plane_size
        for i in range(n_planes):
            row = upper * width
            for j in range(n_rows):
                weight = tent(z - i) * tent(y - j)
                place = start + c * size + plane + row
                near, middle, far = (
                    load(source, place),
                    load(source, place + 1),
                    load(source, place + 2),
                )
                total = total + weight * (x0 * near + x1 * middle + x2 * far)
                row = row + width if row < plane_size - width else 0
            plane = plane + plane_size if plane < size - plane_size else 0
        store(out, (n * n_channels + c) * n_voxels + first, total)
        is_finite &= _are_finite(total)
    # Weights of 0 do not silence NaN and infinity, which belong to fewer voxels.
    return is_finite


@per_segment
def push_segment(
    images: Address,
    displacement: Address,
    out: Address,
    seams: Address,
    shape: Shape,
    n_channels: int,
    n: int,
    first: int,
    point: Point,
) -> bool:
    """Push the voxels from `first`, at `point`, on if they are a segment; return whether they are.

    The transpose of `pull_segment`. Values for neighbours in memory are added up before memory is
    touched, since a processor would wait for what it has just written elsewhere.
    """
    is_smooth, front, upper, left, z, y, x = _find_segment(displacement, shape, n, first, point)
    n_voxels = shape[2] * shape[1] * shape[0]
    for c in range(n_channels):
        is_smooth &= _are_finite(load(images, (n * n_channels + c) * n_voxels + first))
    if not is_smooth:
        return False
    target, start, width = _find_rows(out, n * n_channels * n_voxels, seams, shape[2], left)
    plane_size, size = width * shape[1], width * shape[1] * shape[0]
    n_planes, n_rows = _count_offsets(z), _count_offsets(y)
    x0, x1, x2 = tent(x), tent(x - 1), tent(x - 2)
    for c in range(n_channels):
        values = load(images, (n * n_channels + c) * n_voxels + first)
        # Offsets of 1 and 2 move values on by as many lanes; the last ones into the next lanes.
        moved1, moved2 = rotate(values * x1, 1), rotate(values * x2, 2)
        next1, next2 = first_lanes(moved1, 1), first_lanes(moved2, 2)
        here0, here1, here2 = values * x0, moved1 - next1, moved2 - next2
        plane = front * plane_size
        for i in range(n_planes):
            row = upper * width
            for j in range(n_rows):
                weight = tent(z - i) * tent(y - j)
                weight1, weight2 = rotate(weight, 1), rotate(weight, 2)
                place = start + c * size + plane + row
                here = load(target, place)
                store(target, place, here + weight * here0 + weight1 * here1 + weight2 * here2)
                add_pair(target, place + LANES, weight1 * next1 + weight2 * next2)
                row = row + width if row < plane_size - width else 0
            plane = plane + plane_size if plane < size - plane_size else 0
    return True


@per_segment
def _find_rows(
    images: Address, start: int, seams: Address, width: int, left: int
) -> tuple[Address, int, int]:
    """Return where to find what a segment reaches from column `left` on: in the image, or the seam.

    images, start : where the image begins; width : of its rows.
    Returned are an address, the place behind it of that column in the first row, and how far it is
    to the next row.
    """
    if left + _REACH <= width:
        return images, start + left, width
    return seams, left - width + _MARGIN, SEAM


@per_segment
def _find_segment(
    displacement: Address, shape: Shape, n: int, first: int, point: Point
) -> tuple[bool, int, int, int, Lanes, Lanes, Lanes]:
    """Return whether voxels are a segment, the lowest grid point, and the distances to it.

    That grid point is given by its plane, row and column, distances as lanes along each axis.
    """
    n_voxels = shape[2] * shape[1] * shape[0]
    low_z, z = _split_steps(load(displacement, 3 * n * n_voxels + first))
    low_y, y = _split_steps(load(displacement, (3 * n + 1) * n_voxels + first))
    low_x, x = _split_steps(load(displacement, (3 * n + 2) * n_voxels + first))
    front = _wrapped(point[0] + int(low_z), shape[0])
    upper = _wrapped(point[1] + int(low_y), shape[1])
    left = _wrapped(point[2] + int(low_x), shape[2])
    is_smooth = all_below(z, 2) & all_below(y, 2) & all_below(x, 2)
    is_in_row = (point[2] + LANES <= shape[2]) & (shape[2] >= _MARGIN)
    return is_smooth & is_in_row, front, upper, left, z, y, x


@per_segment
def _wrapped(point: int, length: int) -> int:
    """Return a grid point on a circle: most are there already, and a division takes its time."""
    return point if 0 <= point < length else point % length


@per_segment
def _split_steps(steps: Lanes) -> tuple[float, Lanes]:
    """Return the whole part of the lowest step, and how much longer the steps are."""
    low = np.floor(lowest(steps))
    return low, steps - low


@per_segment
def _count_offsets(distance: Lanes) -> int:
    """Return how many offsets have weights: two where all voxels are in one cell."""
    return 2 if all_below(distance, 1) else 3


@per_segment
def _are_finite(values: Lanes) -> bool:
    return all_below(values - values, 1)  # the difference is 0 or NaN
