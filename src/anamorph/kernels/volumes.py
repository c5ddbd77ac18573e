"""Volumes: pulling and pushing volumes, faster than `warps` where displacements are smooth.

Most voxels are warped eight at a time (see `segments`). Segments that cannot be are set aside, and
some hundreds of their voxels at a time are located and warped one by one, as `warps` does. Planes
have no use for this: their cells have four corners, found in the time it takes to find segments.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, IntArray, Shape, kernel, per_voxel
from anamorph.kernels.lanes import LANES, address, load, store
from anamorph.kernels.segments import (
    SEAM,
    add_seams,
    copy_seams,
    next_point,
    point_of,
    pull_segment,
    push_segment,
)
from anamorph.kernels.warps import gather, locate_piece, pull_voxels, push_voxels, scatter

_PIECE = 512  # voxels set aside at a time: what is known of them stays in the first-level cache


@per_voxel
def _locate_segments(
    displacement: Array,
    coordinates: Array,
    shape: Shape,
    voxels: IntArray,
    near: IntArray,
    far: IntArray,
    fraction: Array,
) -> None:
    """Locate voxels, in runs of eight neighbours: see `locate_piece`."""
    n_voxels, size = displacement.shape[1], fraction.shape[1]
    collected = np.empty((2, 3, size), fraction.dtype)
    steps, points, target = address(displacement), address(coordinates), address(collected)
    for axis in range(3):
        for x in range(0, size, LANES):
            source, place = axis * n_voxels + np.intp(voxels[x]), axis * size + x
            store(target, place, load(steps, source))
            store(target, place + 3 * size, load(points, source))
    locate_piece(collected[0], collected[1], shape, 0, near, far, fraction)


@kernel
def pull_volumes(
    images: Array,
    displacement: Array,
    coordinates: Array,
    out: Array,
    shape: Shape,
    start: int,
    stop: int,
) -> None:
    """Pull volumes at id + displacement, as `pull_voxels` does.

    images, out : (N, C, voxel); displacement : (N, 3, voxel); coordinates : (3, voxel).
    start, stop : which voxels of each volume to compute.
    """
    n_channels = out.shape[1]
    seams = np.empty((n_channels, shape[0] * shape[1], SEAM), images.dtype)
    sources, steps, results = address(images), address(displacement), address(out)
    ends = address(seams)
    aside = np.empty(_PIECE, np.uintp)
    places = np.empty((2, 3, _PIECE), np.int32)
    fractions = np.empty((3, _PIECE), displacement.dtype)
    end = stop - (stop - start) % LANES
    for n in range(out.shape[0]):
        copy_seams(images[n], seams, shape[2])
        first, point = start, point_of(start, shape)
        while first < end:
            n_aside = 0
            while first < end and n_aside < _PIECE:
                if not pull_segment(
                    sources, ends, steps, results, shape, n_channels, n, first, point
                ):
                    for x in range(LANES):
                        aside[n_aside + x] = first + x
                    n_aside += LANES
                first += LANES
                point = next_point(point, shape)
            near, far = places[0, :, :n_aside], places[1, :, :n_aside]
            fraction = fractions[:, :n_aside]
            _locate_segments(displacement[n], coordinates, shape, aside, near, far, fraction)
            for c in range(n_channels):
                image, line = images[n, c], out[n, c]
                for x in range(n_aside):
                    line[aside[x]] = gather(image, near, far, fraction, x, shape)
    # Too few to fill a segment.
    pull_voxels(images, displacement, coordinates, out, shape, end, stop)


@kernel
def push_volumes(
    images: Array,
    displacement: Array,
    coordinates: Array,
    out: Array,
    shape: Shape,
    start: int,
    stop: int,
) -> None:
    """Add volumes pushed to id + displacement to `out`, as `push_voxels` does.

    images, out : (N, C, voxel); displacement : (N, 3, voxel); coordinates : (3, voxel).
    start, stop : which voxels of each volume to push.
    """
    n_channels = out.shape[1]
    seams = np.empty((n_channels, shape[0] * shape[1], SEAM), images.dtype)
    sources, steps, results = address(images), address(displacement), address(out)
    ends = address(seams)
    aside = np.empty(_PIECE, np.uintp)
    places = np.empty((2, 3, _PIECE), np.int32)
    fractions = np.empty((3, _PIECE), displacement.dtype)
    end = stop - (stop - start) % LANES
    for n in range(out.shape[0]):
        seams[:] = 0
        first, point = start, point_of(start, shape)
        while first < end:
            n_aside = 0
            while first < end and n_aside < _PIECE:
                if not push_segment(
                    sources, steps, results, ends, shape, n_channels, n, first, point
                ):
                    for x in range(LANES):
                        aside[n_aside + x] = first + x
                    n_aside += LANES
                first += LANES
                point = next_point(point, shape)
            near, far = places[0, :, :n_aside], places[1, :, :n_aside]
            fraction = fractions[:, :n_aside]
            _locate_segments(displacement[n], coordinates, shape, aside, near, far, fraction)
            for c in range(n_channels):
                image, line = out[n, c], images[n, c]
                for x in range(n_aside):
                    scatter(image, near, far, fraction, x, shape, line[aside[x]])
        add_seams(out[n], seams, shape[2])
    # Too few to fill a segment.
    push_voxels(images, displacement, coordinates, out, shape, end, stop)
