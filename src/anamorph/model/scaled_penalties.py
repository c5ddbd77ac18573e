"""Default penalties in units of the images: those of their intensities and of their voxels.

Where nobody gives penalties of images with noise, the defaults of the likelihood are those for
voxels of size 1 and for images whose mean has a gradient of which the squares average
`_GRADIENT_ENERGY`. A warp of the mean changes it by its gradient times a displacement, and what is
out of place is explained by appearance where that is cheaper. So the weights of appearance and mean
are divided by the gradient energy of the mean: a model of images that are multiplied by a number is
the same model, multiplied. In the same way all weights are those of the voxels of the images,
whatever their unit of length is; how much longer voxels are along one axis than along another still
counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array, ReadableImages
from anamorph.model.settings import Settings

_GRADIENT_ENERGY = 0.0015
# Where objects are in other places in every image, the mean is flat, and says nothing about edges:
# its energy counts as at least this share of that of an image.
_LEAST_SHARE = 0.1
_ROUNDING = 1e-14  # below this share of the largest square, images are constant but for rounding
_LEAST_ENERGY = 1e-30  # below, penalties would be larger than numbers of 32 bits
_MOST_IMAGES = 64  # that are looked at, evenly spread over all of them
# Powers of the size of voxels in weights of size, stretching and bending of scalar fields, and of
# size, stretching, bending, elasticity and divergence of velocities in voxels: see
# `geometry.operators`.
_FIELD_POWERS = (0, 2, 4)
_VELOCITY_POWERS = (-2, 0, 2, 0, 0)


def scaled_penalties(
    settings: Settings, given: Mapping[str, Any], images: ReadableImages
) -> Settings:
    """Return settings whose default penalties are in units of the images.

    Parameters
    ----------
    settings : Settings
        With the default penalties of the likelihood.
    given : mapping
        Arguments of the estimator; penalties that are not None stay as they are.
    images : ReadableImages
        Of the fit.
    """
    if not settings.likelihood.has_noise:
        return settings
    length = math.prod(settings.voxel_size) ** (1 / settings.n_dims)
    names = [name for name in ("appearance_penalty", "mean_penalty") if given[name] is None]
    factor = 1.0
    if names:
        with np.errstate(over="ignore", invalid="ignore"):  # sites refuse infinite images later
            energy = gradient_energy(images, np.divide(settings.voxel_size, length))
        if _LEAST_ENERGY < energy < math.inf:
            factor = _GRADIENT_ENERGY / energy
    scaled: dict[str, Any] = {
        name: _rescaled(getattr(settings, name), factor, length, _FIELD_POWERS) for name in names
    }
    if given["shape_penalty"] is None:
        scaled["shape_penalty"] = _rescaled(settings.shape_penalty, 1.0, length, _VELOCITY_POWERS)
    return replace(settings, **scaled)


def gradient_energy(images: ReadableImages, voxel_size: Float64Array) -> float:
    """Return the squared gradient of the mean of images, averaged over voxels and channels.

    It is at least a tenth of that of the images themselves, and 0 if that is but rounding.

    Parameters
    ----------
    images : ReadableImages
        Some are read, evenly spread.
    voxel_size : (d,)
        In which gradients are found.
    """
    total: Float64Array | float = 0.0
    observed: Float64Array | float = 0.0
    energies = []
    for n in np.linspace(0, len(images) - 1, min(len(images), _MOST_IMAGES)).astype(int):
        image = images.read(slice(n, n + 1))[0].astype(np.float64)
        energies.append(_squared_gradient(image, voxel_size))
        total = total + np.nan_to_num(image)
        observed = observed + ~np.isnan(image)
    mean = np.where(observed == 0, np.nan, total / np.maximum(observed, 1))
    energy = max(_squared_gradient(mean, voxel_size), _LEAST_SHARE * float(np.mean(energies)))
    largest = np.nanmax(np.abs(mean), initial=0)
    return energy if energy > _ROUNDING * largest**2 else 0.0


def _squared_gradient(image: Float64Array, voxel_size: Float64Array) -> float:
    """Return the mean squared gradient of an image (C, *space), NaN where missing.

    Gradients are differences of the voxels before and after one, which noise changes less than
    those of neighbours. Where one of both is missing there is none.
    """
    energy = 0.0
    for axis, size in enumerate(voxel_size, start=1):
        along = np.moveaxis(image, axis, 0)
        differences = (along[2:] - along[:-2]) / (2 * size)
        known = differences[~np.isnan(differences)]
        energy += float(np.square(known).sum() / max(known.size, 1))
    return energy


def _rescaled(
    weights: tuple[float, ...], factor: float, length: float, powers: tuple[int, ...]
) -> tuple[float, ...]:
    return tuple(
        factor * weight * length**power for weight, power in zip(weights, powers, strict=True)
    )
