"""Simulated brains: 3D label maps whose ventricles widen and whose cortex thins with age.

Each is drawn from ellipsoids (cortex, white matter, two ventricles) and warped by a random
diffeomorphism: shape varies, and age explains a part of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.geometry import shoot, velocity

_PENALTY = (0.01, 0.0, 20.0, 1.0, 1.0)
_LARGEST_MOVE = 0.1  # as a share of the shortest side
_YOUNGEST, _OLDEST = 20.0, 90.0  # years

BACKGROUND, GREY_MATTER, WHITE_MATTER, VENTRICLES = range(4)


def brains(
    n_images: int = 40, space: tuple[int, int, int] = (24, 28, 24), seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return simulated label maps of brains, and ages.

    Parameters
    ----------
    n_images : int
        40 by default.
    space : 3 int
        Shape of each volume along the axes right, forward and up; (24, 28, 24) by default.
    seed : int
        The same seed gives the same volumes; 0 by default.

    Returns
    -------
    labels : array of shape (n_images, *space)
        0 is background, 1 grey matter, 2 white matter, 3 ventricles.
    ages : array of shape (n_images,)
        In years.
    """
    generator = np.random.default_rng(seed)
    ages = generator.uniform(_YOUNGEST, _OLDEST, n_images).round(1)
    warps = _random_warps(generator, n_images, space)
    labels = np.empty((n_images, *space), np.uint8)
    for n in range(n_images):
        labels[n] = _draw_labels(np.indices(space) + warps[n], space, ages[n], generator)
    return labels, ages


def _random_warps(
    generator: np.random.Generator, n_images: int, space: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return displacements (n_images, 3, *space) of random diffeomorphisms, in voxels."""
    noise = generator.standard_normal((n_images, 3, *space)).astype(np.float32)
    field = velocity(noise, _PENALTY)
    field -= field.mean(axis=(2, 3, 4), keepdims=True)  # brains stay centred
    field *= _LARGEST_MOVE * min(space) / np.abs(field).max()
    return np.asarray(shoot(field, _PENALTY), np.float32)


def _draw_labels(
    positions: NDArray[np.floating],
    space: tuple[int, ...],
    age: float,
    generator: np.random.Generator,
) -> NDArray[np.uint8]:
    """Return the labels at some positions (3, *space), in voxels."""
    each = (3, 1, 1, 1)
    centre = (np.array(space).reshape(each) - 1) / 2
    right, forward, up = (positions - centre) / (np.array(space).reshape(each) / 2)
    years = (age - _YOUNGEST) / (_OLDEST - _YOUNGEST)
    thickness = 0.27 - 0.09 * years + 0.015 * generator.standard_normal()
    width = 0.12 + 0.11 * years + 0.01 * generator.standard_normal()
    radius = np.sqrt((right / 0.78) ** 2 + (forward / 0.84) ** 2 + (up / 0.76) ** 2)
    ventricle = np.sqrt(
        ((np.abs(right) - 0.2) / width) ** 2
        + ((forward + 0.05) / (2.4 * width)) ** 2
        + ((up - 0.05) / (1.3 * width)) ** 2
    )
    labels = np.full(positions.shape[1:], BACKGROUND, np.uint8)
    labels[radius < 1] = GREY_MATTER
    labels[radius < 1 - thickness] = WHITE_MATTER
    labels[ventricle < 1] = VENTRICLES
    return labels
