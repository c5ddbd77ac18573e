"""Folds in the warps of a fit or of encoded images: cured by more steps, or told.

Where more steps of shooting cure a fold, images are encoded again with as many, and warps are drawn
with as many (`shoot_unfolded`). Only what folds all the same is worth a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anamorph.arrays.typing import BoolArray, Float32Array, Float64Array, IntArray
from anamorph.geometry.shooting import MORE_STEPS, count_folds
from anamorph.images.collection import ImageCollection
from anamorph.model.encoding import Encoded, encode
from anamorph.model.finding import located_at, with_poses
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor
from anamorph.model.progress import progress_told

logger = logging.getLogger("anamorph")

_MOST_CHECKED = 2048
_PRESSED = 0.5


@dataclass(frozen=True)
class Folds:
    """How many warps fold, and where.

    Attributes
    ----------
    n_checked : int
        Images whose warps were looked at: those with the largest velocities, if there are many.
    n_cured : int
        Images whose warps fold in the steps of the model, and do not in more.
    n_images : int
        Images whose warps fold as they are drawn, at voxels or between them.
    n_voxels : int
        Voxels where the determinants of these are not positive, there or in the cell that begins
        there, in all images together.
    smallest : float
        The smallest determinant of these, 1 if there are none.
    """

    n_checked: int = 0
    n_cured: int = 0
    n_images: int = 0
    n_voxels: int = 0
    smallest: float = 1.0


def find_folds(
    predictor: Predictor,
    latents: Float64Array,
    residuals: Float32Array | None = None,
) -> Folds:
    """Look for folds in the warps of latents (N, K), in the steps of the model and in more.

    Parameters
    ----------
    predictor : Predictor
    latents : array of shape (N, K)
    residuals : array of shape (N, d, *space), optional
        Residual velocities; none by default.

    Returns
    -------
    Folds
    """

    def are_cured(finer: Predictor, numbers: IntArray) -> BoolArray:
        return np.asarray(_count(finer, latents, residuals, numbers)[0] == 0)

    return _find_and_cure(predictor, latents, are_cured, residuals)


def encode_unfolded(
    predictor: Predictor,
    images: ImageCollection,
    encoded: Encoded,
    *,
    exact_curvature: bool = True,
) -> tuple[Encoded, Folds]:
    """Encode images again whose warps fold, with as many steps of shooting as cure that.

    Parameters
    ----------
    predictor : Predictor
    images : ImageCollection
    encoded : Encoded
        These images, encoded with the steps of the model.
    exact_curvature : bool
        As they were encoded; True by default.

    Returns
    -------
    encoded : Encoded
        What was cured has the latents and the evidence that more steps give; the rest is the same.
    folds : Folds
    """
    latents, log_evidence = encoded.latents.copy(), encoded.log_evidence.copy()
    n_shootings, poses = encoded.n_shootings.copy(), copy(encoded.poses)

    def encode_again(finer: Predictor, numbers: IntArray) -> BoolArray:
        placed = None if encoded.poses is None else encoded.poses[numbers]
        again = _encode_from(
            finer,
            images.subset(numbers.tolist()),
            encoded.latents[numbers],
            placed,
            exact_curvature=exact_curvature,
        )
        n_shootings[numbers] += again.n_shootings
        are_cured = ~_fold(finer, again.latents)
        latents[numbers[are_cured]] = again.latents[are_cured]
        log_evidence[numbers[are_cured]] = again.log_evidence[are_cured]
        if poses is not None and again.poses is not None:
            poses[numbers[are_cured]] = again.poses[are_cured]
        # What folds all the same keeps its latents, and may not fold when it is drawn.
        return are_cured | ~_fold(finer, encoded.latents[numbers])

    folds = _find_and_cure(predictor, latents, encode_again)
    return Encoded(latents, log_evidence, n_shootings, poses=poses), folds


def tell_of_folds(folds: Folds, remedy: str = "fit with a larger shape_penalty") -> None:
    """Warn of warps that fold, and take note of those that more steps cured.

    Parameters
    ----------
    folds : Folds
    remedy : str
        What to do; by default, fit with a larger shape_penalty.
    """
    if folds.n_cured:
        logger.info(
            "The warps of %d of %d images fold in the steps of shooting that were asked for: more "
            "are taken for them",
            *(folds.n_cured, folds.n_checked),
        )
    if folds.n_images:
        logger.warning(
            "The warps of %d of %d images fold, at %d voxels (smallest Jacobian determinant "
            "%.2g): they are not one-to-one there; %s",
            *(folds.n_images, folds.n_checked, folds.n_voxels, folds.smallest, remedy),
        )


def _find_and_cure(
    predictor: Predictor,
    latents: Float64Array,
    try_again: Callable[[Predictor, IntArray], BoolArray],
    residuals: Float32Array | None = None,
) -> Folds:
    """Find warps that fold, and try again with more steps of shooting while some do.

    Parameters
    ----------
    predictor : Predictor
    latents : (N, K)
    try_again : callable
        Given a predictor that takes more steps and the numbers of images, tells which of them do
        not fold any more. It may change their latents.
    residuals : (N, d, *space), optional
        Residual velocities; none by default.
    """
    chosen = _largest_warps(predictor.generator, latents)
    if not len(chosen):
        return Folds()
    with progress_told(None):
        counts, smallest = _count(predictor, latents, residuals, chosen)
        left = np.flatnonzero(counts)
        n_folded = len(left)
        for factor in MORE_STEPS:
            if not len(left):
                break
            left = left[~try_again(_with_more_steps(predictor, factor), chosen[left])]
        # Smooth warps that press no voxel to half its size do not fold between voxels either.
        pressed = chosen[~(smallest >= _PRESSED)]
        counts, smallest = _count(predictor, latents, residuals, pressed, as_drawn=True)
    is_folded = counts > 0
    n_cured, n_left = n_folded - len(left), int(is_folded.sum())
    lowest = float(smallest[is_folded].min(initial=1.0))
    return Folds(len(chosen), n_cured, n_left, int(counts.sum()), lowest)


def _with_more_steps(predictor: Predictor, factor: int) -> Predictor:
    """Return a predictor that takes some times as many steps of shooting."""
    settings, parameters = predictor.generator.settings, predictor.generator.parameters
    finer = replace(settings, n_steps=factor * settings.n_steps)
    return replace(predictor, generator=Generator(finer, parameters))


def _largest_warps(generator: Generator, latents: Float64Array) -> IntArray:
    """Return which images to look at: all, or those whose velocities may be largest."""
    if generator.settings.layout.n_shape == 0:
        return np.arange(0)
    if len(latents) <= _MOST_CHECKED:
        return np.arange(len(latents))
    basis = generator.parameters.shape_basis
    sizes = np.array([float(abs(column).max()) for column in basis])
    bounds = np.abs(latents[:, generator.settings.layout.shape]) @ sizes
    return np.sort(np.argsort(bounds)[-_MOST_CHECKED:])


def _count(
    predictor: Predictor,
    latents: Float64Array,
    residuals: Float32Array | None,
    numbers: IntArray,
    *,
    as_drawn: bool = False,
) -> tuple[IntArray, Float64Array]:
    """Return what `count_folds` does, of the warps of some images.

    Parameters
    ----------
    predictor : Predictor
    latents : (N, K)
    residuals : (N, d, *space) or None
    numbers : (n,)
        Of the images to look at.
    as_drawn : bool, default False
        Whether to shoot in as many steps as warps need, and to look between voxels too.
    """
    if not len(numbers):
        return np.arange(0), np.zeros(0)

    def look(generator: Generator, part: slice) -> tuple[IntArray, Float64Array]:
        bent = generator.bent(None if residuals is None else residuals[numbers[part]])
        shoot = bent.unfolded_displacement if as_drawn else bent.displacement
        displacement = shoot(generator.own(latents[numbers[part]]))
        assert displacement is not None  # there are latents that move something
        return count_folds(displacement, between_voxels=as_drawn)

    counts, smallest = zip(*predictor.in_parts(look, len(numbers)), strict=True)
    return np.concatenate(counts), np.concatenate(smallest)


def _fold(predictor: Predictor, latents: Float64Array) -> BoolArray:
    """Tell which warps fold, (N,)."""
    return np.asarray(_count(predictor, latents, None, np.arange(len(latents)))[0] > 0)


def _encode_from(
    predictor: Predictor,
    images: ImageCollection,
    start: Float64Array,
    poses: Float64Array | None = None,
    *,
    exact_curvature: bool = True,
) -> Encoded:
    """Return images encoded from given latents (N, K), and from poses (N, P) if they have any."""

    def encode_part(generator: Generator, part: slice) -> Encoded:
        observed, latents = generator.own(images.read(part)), generator.own(start[part])
        how: dict[str, Any] = {"start": latents, "exact_curvature": exact_curvature}
        if poses is None:
            return encode(generator, observed, **how).to_host()
        here = located_at(generator, observed, latents, poses[part])
        return with_poses(here, observed, encode(here, observed, **how)).to_host()

    return Encoded.joined(predictor.in_parts(encode_part, len(images)))
