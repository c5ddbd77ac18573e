"""The background of images with poses: what they show where the template's box has ended.

It is estimated from the outermost voxels of the images, by sums over them.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.devices import beside, to_host
from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry.operators import packed_pairs
from anamorph.likelihoods.base import Likelihood
from anamorph.model.settings import Settings

_MOST_STEPS, _LONGEST_STEP = 30, 2.0  # of Newton, for the level
_PSEUDO_COUNT = 1e-3  # of what no background voxel holds, as a share of all


def border_sums(images: Array) -> Float64Array:
    """Return number, sum and sum of squares of the outermost voxels of images, (3, C)."""
    is_border = np.ones(images.shape[2:], bool)
    is_border[tuple(slice(1, -1) for _ in is_border.shape)] = False
    border = images[:, :, beside(images, is_border)].astype(np.float64)
    seen = ~np.isnan(border)
    border = np.where(seen, border, 0)
    sums = [seen.sum(axis=(0, 2)), border.sum(axis=(0, 2)), np.square(border).sum(axis=(0, 2))]
    return np.stack([to_host(one).astype(np.float64) for one in sums])


def background_image(settings: Settings, background: Float64Array) -> Float64Array:
    """Return what an image is expected to be where it shows a background (2, C), (C,)."""
    level = background[0].reshape(1, -1, *(1,) * settings.n_dims)
    return np.asarray(settings.likelihood.expectation(level), np.float64).reshape(-1)


def background_level(
    likelihood: Likelihood, count: Float64Array, total: Float64Array, squares: Float64Array
) -> Float64Array:
    """Return the background, (2, C): see `Parameters.background`.

    Parameters
    ----------
    likelihood : Likelihood
    count, total, squares : (C,)
        Number of voxels that show background, the sum of what they hold, and of its squares.
    """
    n_channels, most = len(count), np.maximum(count, 1.0)
    share = total / most
    if likelihood.holds_classes:
        share = share + _PSEUDO_COUNT
        share = share / share.sum()
    elif np.isfinite(likelihood.value_range[0]):
        share = np.maximum(share, _PSEUDO_COUNT)
        if np.isfinite(likelihood.value_range[1]):
            share = np.minimum(share, 1 - _PSEUDO_COUNT)
    ones = np.ones((n_channels, 1, 1))
    value = share[:, None, None]
    level = likelihood.starting_mean(ones, value)
    precision = np.ones(n_channels)
    for _ in range(_MOST_STEPS):
        gradient, hessian = likelihood.mean_derivatives(level, ones, value, precision)
        matrix = _unpacked(hessian[:, 0, 0].astype(np.float64), n_channels)
        step = np.linalg.inv(matrix) @ gradient[:, 0, 0]
        level = level - np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)[:, None, None]
        level = likelihood.remove_redundancy(level[None])[0]
    if likelihood.has_noise:
        rest = np.maximum(squares - total**2 / most, 0)
        precision = likelihood.noise_precision(rest, most, (total / most) ** 2)
    return np.stack([level[:, 0, 0], precision])


def _unpacked(packed: Float64Array, size: int) -> Float64Array:
    matrix = np.diag(packed[:size])
    if len(packed) > size:
        for number, (i, j) in enumerate(packed_pairs(size)):
            matrix[i, j] = matrix[j, i] = packed[number]
    return np.asarray(matrix + 1e-9 * np.eye(size), np.float64)
