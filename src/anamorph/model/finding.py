"""Poses of images that a model has not seen: found from nothing, given the model's mean."""

from __future__ import annotations

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.generator import Generator
from anamorph.model.pose_search import Target, averaged, match_poses, search_levels
from anamorph.model.posing import background_image, improve_poses

_FINEST_STEPS = 10


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
    background = background_image(settings, parameters)
    poses = np.zeros((len(images), settings.frame.n_coordinates))
    *coarse, finest = search_levels(settings)
    for number, frame in enumerate(coarse or [finest]):
        target = Target(averaged(expected, frame.factors)[0], background, frame)
        poses = match_poses(settings, target, images, poses, search=number == 0)
    appearance = array_namespace(images).ascontiguousarray(
        np.broadcast_to(parameters.mean, images.shape)
    )
    return improve_poses(
        generator, images, appearance, None, poses, n_steps=_FINEST_STEPS
    ).poses
