"""Attacks on an honest run: they find what the threat model says, or it says too much."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from examples.federation.colluding import Steering
from examples.federation.recorded_run import record
from examples.federation.separation import (
    distance_from_span,
    images_by_moments,
    likeness,
    matched_images,
    ranked_right,
)

# The settings with which sums tell most.
FREE = (0.01, 1.0, 1.0)


@pytest.fixture(scope="module")
def images():
    return digits()[0][:, ::2, ::2].astype(np.float32) / 255


def flat(images):
    return images.reshape(len(images), -1).astype(np.float64)


def found(seen, images):
    recovered = matched_images(images_by_moments(seen, 1e-4), seen)
    return likeness(recovered, flat(images), seen.mean)


def test_without_warps_two_images_per_component_are_solved_for(images):
    model = ShapeAppearanceModel(5, latents="appearance", appearance_penalty=FREE, n_iter=12)
    seen = record(images[:10], model)
    assert np.median(found(seen, images[:10])) > 0.99
    assert np.median(found(seen, images[200:300])) < 0.7
    members, others = (distance_from_span(seen, flat(x)) for x in (images[:10], images[200:]))
    assert members.max() < 1e-3 < others.min()
    assert ranked_right(members, others) == 1


def test_few_sums_for_many_images_do_not_give_them_away(images):
    model = ShapeAppearanceModel(4, latents="appearance", appearance_penalty=FREE, n_iter=6)
    seen = record(images[:96], model)  # four images for every weighted sum that is told
    assert np.mean(found(seen, images[:96]) > 0.95) < 0.05


def test_a_site_that_steers_the_modes_makes_them_tell_more(images):
    model = ShapeAppearanceModel(4, latents="appearance", appearance_penalty=FREE, n_iter=12)
    honest = found(record(images[:32], model), images[:32])
    steered = found(record(images[:32], model, Steering(1.0)), images[:32])
    assert np.median(steered) > np.median(honest)
