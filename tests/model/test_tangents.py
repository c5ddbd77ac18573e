"""Linear warps: exact where they are found, and they learn what shooting shows."""

import numpy as np
import pytest

from anamorph.model.descent import Trial
from anamorph.model.encoding import propose
from anamorph.model.generator import Generator
from tests import simulated
from tests.conftest import relative_error

every_layout = pytest.mark.parametrize("layout", ["joint", "separate", "shape"])


def linear_problem(layout):
    """Return a generator, latents, images and tangents there."""
    settings, parameters, latents, images = simulated.random_problem(
        "gaussian", layout, n_images=3, missing=0.1
    )
    generator = Generator(settings, parameters)
    proposal = propose(generator, images, latents, generator.displacement(latents))
    tangents = generator.find_tangents(latents, np.linalg.inv(proposal.covariance))
    return generator, latents, images, tangents


def step_of(latents, size, seed=0):
    return size * np.random.default_rng(seed).standard_normal(latents.shape)


@every_layout
def test_linear_warps_are_those_of_shooting_nearby(layout):
    generator, latents, _, tangents = linear_problem(layout)
    linear = generator.linearised(tangents)
    here = generator.displacement(latents)
    assert np.array_equal(linear.displacement(latents), here)
    near = latents + step_of(latents, 0.01)
    moved = generator.displacement(near) - here
    assert relative_error(linear.displacement(near) - here, moved) < 0.05


@every_layout
def test_gradients_of_linear_warps_are_the_derivatives_of_their_values(layout):
    generator, latents, images, tangents = linear_problem(layout)
    linear = generator.linearised(tangents)
    at, everyone = latents + step_of(latents, 0.05), np.arange(3)
    trial = Trial(linear, images, at)
    assert (trial.make_exact(everyone) == 1).all()
    direction = step_of(latents, 1.0, seed=1)
    values = [Trial(linear, images, at + e * direction).value for e in (1e-4, -1e-4)]
    slopes = -(values[0] - values[1]) / 2e-4
    assert np.allclose((trial.gradient * direction).sum(axis=1), slopes, rtol=0.02, atol=0.5)


@every_layout
def test_a_step_that_was_learnt_leads_where_shooting_led(layout):
    generator, latents, _, tangents = linear_problem(layout)
    images, shape = np.array([0, 2]), generator.settings.layout.shape
    other = latents + step_of(latents, 0.5)
    before = tangents.effects[1].copy()
    moved = generator.displacement(other) - tangents.displacement
    step = (other - latents)[images][:, shape]
    tangents.learn_step(images, step, moved[images], step)
    found = tangents.path(other[:, shape]).displacement - tangents.displacement
    assert relative_error(found[images], moved[images]) < 1e-5
    assert np.array_equal(tangents.effects[1], before)


def test_slopes_that_were_learnt_are_the_slopes():
    _, latents, _, tangents = linear_problem("joint")
    images = np.array([1])
    force = np.random.default_rng(0).standard_normal(tangents.displacement.shape)
    force = force.astype(np.float32)
    before = tangents.slopes(force)
    tangents.learn_slope(images, force[images], np.full((1, latents.shape[1]), 3.0))
    change = tangents.slopes(force) - before
    assert np.allclose(change[1], 3.0, rtol=1e-3, atol=1e-3)
    assert not change[[0, 2]].any()


def test_a_step_of_no_length_teaches_nothing():
    _, latents, _, tangents = linear_problem("joint")
    before, nothing = tangents.effects.copy(), np.zeros_like(latents)
    tangents.learn_step(np.arange(3), nothing, np.zeros_like(tangents.displacement), nothing)
    assert np.array_equal(tangents.effects, before)
