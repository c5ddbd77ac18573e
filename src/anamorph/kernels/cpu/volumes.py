"""Volumes: pull and push of volumes, faster than `warps` where displacements are smooth.

Most voxels are warped eight at a time (see `segments`). Voxels that are no segment are set aside,
some hundreds at a time, and then located and warped one by one, as in `warps`. Planes would not
gain: the four corners of a cell are found in the time it takes to find a segment.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, formula, kernel
from anamorph.kernels.cpu.lanes import LANES, address
from anamorph.kernels.cpu.segments import (
    SEAM,
    Point,
    add_seams,
    copy_seams,
    find_point,
    next_point,
    pull_segment,
    push_segment,
)
from anamorph.kernels.cpu.warps import gather, locate_piece, scatter

_PIECE = 512  # voxels set aside at a time: what is known of them stays in the first-level cache


@kernel
def pull_volumes(
    images: Array, displacement: Array, out: Array, shape: Shape, start: int, stop: int
) -> None:
    """Pull volumes at id + displacement: out(x) = image(x + displacement(x)).

    images, out : (N, C, voxel); displacement : (N, 3, voxel).
    start, stop : which voxels of each volume to compute.
    """
    n_channels = out.shape[1]
    seams = np.empty((n_channels, shape[0] * shape[1], SEAM), images.dtype)
    sources, steps, results = address(images), address(displacement), address(out)
    ends = address(seams)
    voxels = np.empty(_PIECE, np.uintp)
    places = np.empty((2, 3, _PIECE), np.int32)
    numbers = np.empty((3, 3, _PIECE), displacement.dtype)
    for n in range(out.shape[0]):
        copy_seams(images[n], seams, shape[2])
        first, point = start, find_point(start, shape)
        while first < stop:
            n_aside = 0
            while first < stop and n_aside + LANES <= _PIECE:
                size = min(LANES, stop - first)
                if size < LANES or not pull_segment(
                    sources, ends, steps, results, shape, n_channels, n, first, point
                ):
                    _set_aside(voxels, numbers, n_aside, displacement[n], shape, first, point, size)
                    n_aside += size
                first += LANES
                point = next_point(point, shape)
            near, far, fraction = _locate(places, numbers, shape, n_aside)
            for c in range(n_channels):
                image, line = images[n, c], out[n, c]
                for x in range(n_aside):
                    line[voxels[x]] = gather(image, near, far, fraction, x, shape)


@kernel
def push_volumes(
    images: Array, displacement: Array, out: Array, shape: Shape, start: int, stop: int
) -> None:
    """Set `out` to volumes pushed to id + displacement: the transpose of `pull_volumes`.

    images, out : (N, C, voxel); displacement : (N, 3, voxel).
    start, stop : which voxels of each volume to push.
    """
    n_channels = out.shape[1]
    seams = np.empty((n_channels, shape[0] * shape[1], SEAM), images.dtype)
    sources, steps, results = address(images), address(displacement), address(out)
    ends = address(seams)
    voxels = np.empty(_PIECE, np.uintp)
    places = np.empty((2, 3, _PIECE), np.int32)
    numbers = np.empty((3, 3, _PIECE), displacement.dtype)
    for n in range(out.shape[0]):
        out[n] = 0
        seams[:] = 0
        first, point = start, find_point(start, shape)
        while first < stop:
            n_aside = 0
            while first < stop and n_aside + LANES <= _PIECE:
                size = min(LANES, stop - first)
                if size < LANES or not push_segment(
                    sources, steps, results, ends, shape, n_channels, n, first, point
                ):
                    _set_aside(voxels, numbers, n_aside, displacement[n], shape, first, point, size)
                    n_aside += size
                first += LANES
                point = next_point(point, shape)
            near, far, fraction = _locate(places, numbers, shape, n_aside)
            for c in range(n_channels):
                image, line = out[n, c], images[n, c]
                for x in range(n_aside):
                    scatter(image, near, far, fraction, x, shape, line[voxels[x]])
        add_seams(out[n], seams, shape[2])


@formula
def _set_aside(
    voxels: IntArray,
    numbers: Array,
    n_aside: int,
    displacement: Array,
    shape: Shape,
    first: int,
    point: Point,
    size: int,
) -> None:
    """Note voxels that are no segment: their numbers, displacements and coordinates.

    voxels : (place,); numbers : (2 or more, 3, place), displacements and coordinates.
    """
    plane, row, column = point
    for x in range(size):
        place, voxel = n_aside + x, first + x
        voxels[place] = voxel
        for axis in range(3):
            numbers[0, axis, place] = displacement[axis, voxel]
        numbers[1, 0, place] = plane
        numbers[1, 1, place] = row
        numbers[1, 2, place] = column
        column += 1
        if column == shape[2]:
            column = 0
            row += 1
            if row == shape[1]:
                row = 0
                plane += 1


@formula
def _locate(
    places: IntArray, numbers: Array, shape: Shape, n_aside: int
) -> tuple[IntArray, IntArray, Array]:
    """Locate the voxels that were set aside, with `locate_piece`."""
    near, far, fraction = places[0, :, :n_aside], places[1, :, :n_aside], numbers[2, :, :n_aside]
    locate_piece(numbers[0], numbers[1], shape, 0, near, far, fraction)
    return near, far, fraction
