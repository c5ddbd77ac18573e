"""Warps that fold: where the Jacobian determinant is not positive, psi is not one-to-one.

Geodesics never fold, but geodesic shooting takes finite steps on a grid: very large or rough
velocities fold all the same. Whoever fits or encodes is told.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Float64Array, IntArray
from anamorph.geometry import jacobian_determinant
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor
from anamorph.model.progress import progress_told

logger = logging.getLogger("anamorph")

_MOST_CHECKED = 2048
_MOST_TRIED_AGAIN = 16
_MORE_STEPS = (2, 4)  # times those of the model


@dataclass(frozen=True)
class Folds:
    """How many warps fold, and where.

    Attributes
    ----------
    n_images : int
        Images whose warps fold.
    n_checked : int
        Images whose warps were looked at: those with the largest velocities, if there are many.
    n_voxels : int
        Voxels where determinants are not positive, in all images together.
    smallest : float
        The smallest determinant.
    cured_by : int or None
        Number of steps with which none of them would fold; None if twice and four times as many
        do not help.
    """

    n_images: int
    n_checked: int
    n_voxels: int
    smallest: float
    cured_by: int | None


def find_folds(predictor: Predictor, latents: Float64Array) -> Folds:
    """Look for folds in the warps of latents (N, K).

    Parameters
    ----------
    predictor : Predictor
    latents : array of shape (N, K)

    Returns
    -------
    Folds
    """
    generator = predictor.generator
    if generator.settings.layout.n_shape == 0 or len(latents) == 0:
        return Folds(0, 0, 0, 1.0, None)
    chosen = latents[_largest_warps(generator, latents)]
    counts, smallest = _determinants(predictor, chosen)
    folded = chosen[counts > 0]
    return Folds(
        len(folded),
        len(chosen),
        int(counts.sum()),
        float(smallest.min()),
        _find_cure(predictor, folded[:_MOST_TRIED_AGAIN]) if len(folded) else None,
    )


def warn_of_folds(predictor: Predictor, latents: Float64Array) -> None:
    """Warn if warps of latents (N, K) fold, and say what helps."""
    with progress_told(None):
        folds = find_folds(predictor, latents)
    if folds.n_images == 0:
        return
    if folds.cured_by is None:
        advice = "more steps of shooting do not help; fit with a larger shape_penalty"
    else:
        advice = f"fit with n_steps={folds.cured_by}, with which they do not fold"
    logger.warning(
        "The warps of %d of %d images fold, at %d voxels (smallest Jacobian determinant %.2g): "
        "they are not one-to-one there; %s",
        *(folds.n_images, folds.n_checked, folds.n_voxels, folds.smallest, advice),
    )


def _largest_warps(generator: Generator, latents: Float64Array) -> IntArray:
    """Return which images to look at: all, or those whose velocities may be largest."""
    if len(latents) <= _MOST_CHECKED:
        return np.arange(len(latents))
    basis = generator.parameters.shape_basis
    sizes = np.array([float(abs(column).max()) for column in basis])
    bounds = np.abs(latents[:, generator.settings.layout.shape]) @ sizes
    return np.sort(np.argsort(bounds)[-_MOST_CHECKED:])


def _determinants(predictor: Predictor, latents: Float64Array) -> tuple[IntArray, Float64Array]:
    """Return per image how many determinants are not positive, and the smallest one."""

    def look(generator: Generator, part: slice) -> tuple[IntArray, Float64Array]:
        displacement = to_host(generator.displacement(generator.own(latents[part])))
        determinant = jacobian_determinant(displacement).reshape(len(displacement), -1)
        return (~(determinant > 0)).sum(axis=1), determinant.min(axis=1)

    parts = predictor.in_parts(look, len(latents))
    counts, smallest = zip(*parts, strict=True)
    return np.concatenate(counts), np.concatenate(smallest)


def _find_cure(predictor: Predictor, latents: Float64Array) -> int | None:
    """Return how many steps make warps that do not fold; None if those tried do not."""
    settings = predictor.generator.settings
    for factor in _MORE_STEPS:
        finer = replace(settings, n_steps=factor * settings.n_steps)
        generator = Generator(finer, predictor.generator.parameters)
        if not _determinants(replace(predictor, generator=generator), latents)[0].any():
            return finer.n_steps
    return None
