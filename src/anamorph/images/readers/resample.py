"""Resampling onto another grid by the affines; voxels outside the field of view are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from anamorph.arrays.typing import BoolArray
from anamorph.images.grid import Affine, Grid
from anamorph.images.labels import MISSING

_HALF = 0.5  # the field of view ends half a voxel beyond the centres of the outermost voxels


def resample(image: NDArray[Any], source: Grid, target: Grid) -> NDArray[np.float32]:
    """Return intensities on another grid, by linear interpolation.

    Parameters
    ----------
    image : array of shape (C, *source.space)
        NaN where missing.
    source, target : Grid
        With affines.

    Returns
    -------
    array of shape (C, *target.space)
        NaN outside the field of view, and where most of the interpolation weight is on missing
        voxels.
    """
    transform, outside = _match_grids(source, target)
    result = np.empty((len(image), *target.space), np.float32)
    for channel, interpolated in zip(image.astype(np.float32), result, strict=True):
        missing = np.isnan(channel)
        interpolated[...] = _interpolate(np.where(missing, 0, channel), transform, target, 1)
        if missing.any():
            observed = _interpolate((~missing).astype(np.float32), transform, target, 1)
            observed[observed < _HALF] = np.nan
            interpolated /= observed
        interpolated[outside] = np.nan
    return result


def resample_labels(labels: NDArray[np.int32], source: Grid, target: Grid) -> NDArray[np.int32]:
    """Return the labels of the nearest voxels, MISSING outside; shapes as in `resample`."""
    transform, outside = _match_grids(source, target)
    result = np.stack([_interpolate(channel, transform, target, 0) for channel in labels])
    result[:, outside] = MISSING
    return result


def _match_grids(source: Grid, target: Grid) -> tuple[Affine, BoolArray]:
    """Return the affine (4, 4) from voxels of the target to those of the source, and its limits.

    Returns
    -------
    transform : array of shape (4, 4)
    outside : array of shape target.space
        Whether a voxel of the target is outside the field of view of the source.
    """
    if source.affine is None or target.affine is None:
        raise ValueError("both grids must have an affine")
    transform = np.asarray(np.linalg.solve(source.affine, target.affine), np.float64)
    voxels = np.ogrid[tuple(slice(length) for length in _shape_in_3d(target.space))]
    outside = np.zeros(_shape_in_3d(target.space), np.bool_)
    for row, length in zip(transform[:3], _shape_in_3d(source.space), strict=True):
        position = sum((step * index for step, index in zip(row, voxels, strict=False)), row[3])
        outside |= (position < -_HALF) | (position > length - _HALF)
    return transform, outside.reshape(target.space)


def _interpolate(
    channel: NDArray[Any], transform: Affine, target: Grid, order: int
) -> NDArray[Any]:
    """Interpolate one channel; the outermost voxels extend beyond the grid."""
    result: NDArray[Any] = affine_transform(
        channel.reshape(_shape_in_3d(channel.shape)),
        transform[:3, :3],
        transform[:3, 3],
        _shape_in_3d(target.space),
        order=order,
        mode="nearest",
    )
    return result.reshape(target.space)


def _shape_in_3d(space: tuple[int, ...]) -> tuple[int, ...]:
    return (*space, *(1,) * (3 - len(space)))
