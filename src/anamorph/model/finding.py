"""Poses of images that a model has not seen: first given its mean, then given their latents.

Poses and latents take turns, since either may explain what the other left. What both can explain,
as a mode of shape that turns everything, poses do: their prior is weaker.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry.coarsen import block_means
from anamorph.model.background import background_image
from anamorph.model.encoding import Encoded, encode
from anamorph.model.generator import Generator
from anamorph.model.pose_search import Target, match_poses, search_levels
from anamorph.model.pose_steps import improve_poses
from anamorph.model.posing import PosedGenerator

_FINEST_STEPS = 10
_ROUNDS, _SHOOTINGS, _TOLERANCE = 2, 20, 0.1  # of latents that only serve to find poses


def find_poses(generator: Generator, images: Array) -> Float64Array:
    """Return the poses (N, P) that bring the mean of a model onto images (N, C, *space).

    Parameters
    ----------
    generator : Generator
        Without poses.
    images : (N, C, *space)
        NaN where missing.
    """
    settings, parameters = generator.settings, generator.parameters
    expected = settings.likelihood.expectation(parameters.mean[None])
    background = background_image(settings, parameters.known_background)
    poses = np.zeros((len(images), settings.frame.n_coordinates))
    *coarse, finest = search_levels(settings)
    for number, frame in enumerate(coarse or [finest]):
        target = Target(block_means(expected, frame.factors)[0], background, frame)
        poses = match_poses(settings, target, images, poses, search=number == 0)
    appearance = array_namespace(images).ascontiguousarray(
        np.broadcast_to(parameters.mean, images.shape)
    )
    return improve_poses(generator, images, appearance, None, poses, n_steps=_FINEST_STEPS).poses


def located(generator: Generator, images: Array) -> PosedGenerator:
    """Return what a model with poses says of images (N, C, *space) at theirs."""
    posed = PosedGenerator.of(generator, find_poses(generator, images))
    for _ in range(_ROUNDS):
        found = encode(posed, images, _SHOOTINGS, _TOLERANCE, exact_curvature=False)
        posed = located_at(generator, images, found.latents, posed.poses)
    return posed


def located_at(
    generator: Generator, images: Array, latents: Float64Array, poses: Float64Array | None = None
) -> PosedGenerator:
    """Return what a model says of images at their most probable poses, given latents (N, K).

    Parameters
    ----------
    generator : Generator
        Without poses.
    images : (N, C, *space)
    latents : (N, K)
    poses : (N, P), optional
        Where to start; by default they are found from nothing.
    """
    start = find_poses(generator, images) if poses is None else poses
    appearance, displacement = generator.appearance(latents), generator.displacement(latents)
    found = improve_poses(generator, images, appearance, displacement, start, n_steps=_FINEST_STEPS)
    return replace(PosedGenerator.of(generator, found.poses), start=latents)


def with_poses(generator: PosedGenerator, images: Array, encoded: Encoded) -> Encoded:
    """Return what was found of images at their poses, with poses, and evidence of both.

    The evidence gets the terms of Laplace's approximation for poses: ln|P|/2 - ln|H|/2.
    """
    appearance = generator.appearance(encoded.latents)
    displacement = generator.displacement(encoded.latents)
    _, _, hessian = generator.pose_derivatives(appearance, displacement, images)
    prior = generator.frame.prior_precision
    _, log_determinant = np.linalg.slogdet(hessian + np.diag(prior))
    terms = 0.5 * (np.log(prior).sum() - log_determinant)
    evidence = encoded.log_evidence + beside(encoded.log_evidence, terms)
    return replace(encoded, log_evidence=evidence, poses=generator.poses)
