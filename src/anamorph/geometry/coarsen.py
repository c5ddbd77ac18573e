"""Grids of a pyramid: images averaged on coarser ones, and fields brought back to finer ones.

All grids of a pyramid divide the same periodic box: a grid of n' voxels of size h' has the period
n' h' = n h along every axis, whatever n and n' are. Voxels are cells: voxel i of an axis of n
covers the share from i / n to (i + 1) / n of it.

A coarse voxel holds the mean of what is observed in its cell, fine voxels that lie in several
cells counting by their overlap. It is missing (NaN) only where nothing is observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array

# Coarse axes of an even length can be halved again, and are transformed quickly.
_MULTIPLE = 2


class Coarsened(NamedTuple):
    """Images on a coarser grid, and what averaging has lost of them.

    Attributes
    ----------
    images : (N, C, *space)
        NaN where nothing is observed.
    spread : (N, C) float64
        Sum over coarse voxels of the variance of what is observed in their cells.
    """

    images: Array
    spread: Float64Array


def coarse_grid(
    space: Sequence[int], voxel_size: Sequence[float], factor: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the shape and voxel size of a coarser grid of the same periodic box.

    Parameters
    ----------
    space : 2 or 3 int
        Shape of the fine grid.
    voxel_size : 2 or 3 numbers
        Its voxel size.
    factor : float
        How many times longer voxels should be than the shortest side of a fine one. Axes along
        which they are as long already stay as they are.

    Returns
    -------
    space : tuple of int
        Lengths are even where they change.
    voxel_size : tuple of float
    """
    target = factor * min(voxel_size)
    coarse = []
    for length, size in zip(space, voxel_size, strict=True):
        cells = math.ceil(length * size / target - 1e-6)
        cells = _MULTIPLE * math.ceil(cells / _MULTIPLE)
        coarse.append(min(length, cells))
    sizes = (n * h / m for n, h, m in zip(space, voxel_size, coarse, strict=True))
    return tuple(coarse), tuple(sizes)


def coarsened(images: Array, space: Sequence[int]) -> Array:
    """Return the means of images over the cells of a coarser grid.

    Parameters
    ----------
    images : (N, C, *space)
        NaN where missing.
    space : 2 or 3 int
        Shape of the coarse grid, at most that of the images along every axis.

    Returns
    -------
    array of shape (N, C, *space)
        Of the dtype of the images; NaN where nothing is observed.
    """
    return _means(images, tuple(space))[0]


def coarsened_with_spread(images: Array, space: Sequence[int]) -> Coarsened:
    """Do what `coarsened` does, and tell how much images vary within the cells.

    Parameters
    ----------
    images : (N, C, *space)
    space : 2 or 3 int

    Returns
    -------
    Coarsened
    """
    means, shares = _means(images, tuple(space))
    squares, _ = _means(np.square(images.astype(np.float64)), tuple(space))
    axes = tuple(range(2, means.ndim))
    variance = squares - np.square(means.astype(np.float64))
    return Coarsened(means, np.where(shares > 0, np.maximum(variance, 0), 0).sum(axis=axes))


def block_means(images: Array, factors: tuple[int, ...]) -> Array:
    """Return means over blocks of voxels of images (N, C, *space), NaN where all are missing.

    Blocks begin in the first corner: voxels are multiples of the fine ones, and those of the last
    blocks may reach out of the box. This is for poses, which know no period.
    """
    if max(factors, default=1) == 1:
        return images
    xp = array_namespace(images)
    excess = [-n % factor for n, factor in zip(images.shape[2:], factors, strict=True)]
    padding = [(0, 0), (0, 0), *((0, more) for more in excess)]
    padded = xp.pad(images, padding, constant_values=np.float32(np.nan))
    shape = list(padded.shape[:2])
    for n, factor in zip(padded.shape[2:], factors, strict=True):
        shape += [n // factor, factor]
    blocks = padded.reshape(shape)
    within = tuple(range(3, blocks.ndim, 2))
    count = (~np.isnan(blocks)).sum(axis=within)
    total = np.nan_to_num(blocks).sum(axis=within)
    missing = count == 0
    means = np.where(missing, np.float32(np.nan), total / np.where(missing, 1, count))
    contiguous: Array = xp.ascontiguousarray(means.astype(np.float32))
    return contiguous


def prolonged(fields: Array, space: Sequence[int]) -> Array:
    """Return fields on a finer grid of the same periodic box, by cubic interpolation.

    Parameters
    ----------
    fields : (..., *coarse space)
    space : 2 or 3 int
        Shape of the fine grid.

    Returns
    -------
    array of shape (..., *space)
        Of the dtype of the fields.
    """
    coarse = fields.shape[-len(space) :]
    matrices = [interpolation_matrix(m, n) for m, n in zip(coarse, space, strict=True)]
    return _along_axes(fields, matrices)


def prolonged_velocities(fields: Array, space: Sequence[int]) -> Array:
    """Return velocities (..., d, *space) on a finer grid, in voxels of that grid."""
    coarse = fields.shape[-len(space) :]
    ratios = beside(fields, [n / m for m, n in zip(coarse, space, strict=True)], fields.dtype)
    finer: Array = prolonged(fields, space) * ratios.reshape(-1, *(1,) * len(space))
    return finer


@lru_cache(maxsize=64)
def averaging_matrix(n_fine: int, n_coarse: int) -> Float64Array:
    """Return the share of each coarse cell that each fine voxel covers, (coarse, fine).

    Rows sum to 1.
    """
    # In units of 1 / (n_fine n_coarse) of the axis all bounds are integers, and overlaps exact.
    cells, voxels = n_fine * np.arange(n_coarse)[:, None], n_coarse * np.arange(n_fine)
    first, last = np.maximum(cells, voxels), np.minimum(cells + n_fine, voxels + n_coarse)
    return _shared(np.maximum(last - first, 0) / n_fine)


@lru_cache(maxsize=64)
def interpolation_matrix(n_coarse: int, n_fine: int) -> Float64Array:
    """Return the weight of each coarse voxel at each fine one, (fine, coarse).

    Cubic convolution (Catmull-Rom) between the centres of cells, around a periodic axis: rows sum
    to 1, and polynomials up to the second degree are exact where the axis does not begin again.
    """
    if n_coarse == n_fine:
        return _shared(np.eye(n_fine))
    place = (np.arange(n_fine) + 0.5) * n_coarse / n_fine - 0.5
    left = np.floor(place).astype(int)
    t = place - left
    weights = (
        ((2 - t) * t - 1) * t / 2,
        ((3 * t - 5) * t * t + 2) / 2,
        ((4 - 3 * t) * t + 1) * t / 2,
        (t - 1) * t * t / 2,
    )
    matrix = np.zeros((n_fine, n_coarse))
    for offset, weight in zip(range(-1, 3), weights, strict=True):
        np.add.at(matrix, (np.arange(n_fine), (left + offset) % n_coarse), weight)
    return _shared(matrix)


def _shared(matrix: Float64Array) -> Float64Array:
    matrix.flags.writeable = False  # all callers with the same arguments share it
    return matrix


def _means(images: Array, space: tuple[int, ...]) -> tuple[Array, Array]:
    """Return means over coarse cells, and the share of each cell that is observed."""
    fine = images.shape[2:]
    if len(fine) != len(space) or any(m > n for m, n in zip(space, fine, strict=True)):
        raise ValueError(
            f"a coarser grid must have at most {fine} voxels along the axes, got {space}"
        )
    matrices = [averaging_matrix(n, m) for n, m in zip(fine, space, strict=True)]
    xp, missing = array_namespace(images), np.isnan(images)
    if not missing.any():
        return _along_axes(images, matrices), xp.ones((1,) * images.ndim, images.dtype)
    totals = _along_axes(np.where(missing, images.dtype.type(0), images), matrices)
    shares = _along_axes((~missing).astype(images.dtype), matrices)
    # An image that lacks nothing is averaged as if it were alone.
    shares = np.where(missing.any(axis=tuple(range(1, images.ndim)), keepdims=True), shares, 1)
    # Overlaps that are rounded can leave a trace of what is not observed at all.
    is_seen = shares > 1e-6
    means = np.where(is_seen, totals / np.where(is_seen, shares, 1), images.dtype.type(np.nan))
    return means, np.where(is_seen, shares, 0)


def _along_axes(fields: Array, matrices: Sequence[Float64Array]) -> Array:
    """Return fields (..., *space) multiplied by a matrix (to, from) along each axis of space.

    Every field is multiplied by itself, so that its result does not depend on the others.
    """
    n_dims = len(matrices)
    leading, space = fields.shape[:-n_dims], list(fields.shape[-n_dims:])
    for axis, matrix in enumerate(matrices):
        factor = beside(fields, matrix, fields.dtype)
        before, after = math.prod(space[:axis]), math.prod(space[axis + 1 :])
        if axis == n_dims - 1:
            fields = fields.reshape(*leading, before, space[axis]) @ factor.T
        else:
            fields = factor @ fields.reshape(*leading, before, space[axis], after)
        space[axis] = len(matrix)
    return fields.reshape(*leading, *space)
