"""Steps of the shape basis with poses and on several grids: exact gradients, and their lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anamorph.fitting.pyramid import GridSettings
from anamorph.fitting.step_length import next_step
from tests import simulated

LIKELIHOODS = ("gaussian", "bernoulli", "categorical", "poisson")


def posed_problem(likelihood, space):
    """Return settings, parameters, latents, images and poses of a model with large warps.

    Images are small parts of the template: what crosses a border would change F by a jump.
    """
    settings, parameters, latents, images = simulated.random_problem(
        likelihood, n_images=4, missing=0.1, space=space, align="similarity"
    )
    level = np.zeros(settings.n_channels)
    parameters = replace(
        parameters,
        background=np.stack([level, level + 1]),
        shape_basis=np.float32(0.6) * parameters.shape_basis,
    )
    generator = np.random.default_rng(3)
    poses = 0.1 * generator.standard_normal((4, settings.frame.n_coordinates))
    poses[:, -1] -= 0.7  # zoom
    return settings, parameters, latents, images, poses


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("space", [(12, 10), (12, 11, 10)])
@pytest.mark.parametrize("with_poses", [True, False])
def test_gradients_of_the_shape_basis_are_exact(likelihood, space, with_poses):
    """The gradient of Algorithm 6, which takes warps for small ones, is far from it."""
    settings, parameters, latents, images, poses = posed_problem(likelihood, space)
    if not with_poses:
        settings = GridSettings.of(replace(settings, align="none"))
        parameters, poses = replace(parameters, background=None), poses[:, :0]
    cohort = simulated.cohort_with(settings, parameters, latents, images)
    cohort.poses = poses
    gradient = cohort.shape_derivatives()["gradient"]
    direction = simulated.smooth(np.random.default_rng(5), gradient.shape, len(space), 2.0)

    def value(step, version):
        basis = (parameters.shape_basis + step * direction).astype(np.float32)
        cohort.publish(replace(parameters, shape_basis=basis, warp_version=version))
        return -cohort.appearance_derivatives().scalar("log_likelihood")

    step = 1e-3
    difference = (value(step, 1) - value(-step, 2)) / (2 * step)
    # Linear interpolation has kinks, and images are float32.
    scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
    assert np.vdot(gradient, direction) == pytest.approx(difference, rel=0.02, abs=2e-3 * scale)


@pytest.mark.parametrize("align", ["none", "similarity"])
def test_a_shape_basis_of_zero_is_not_shot(align, monkeypatch):
    settings, parameters, latents, images, poses = posed_problem("bernoulli", (12, 10))
    settings = replace(settings, align=align)
    background = parameters.background if settings.has_poses else None
    still = replace(
        parameters, shape_basis=np.zeros_like(parameters.shape_basis), background=background
    )
    shot = []
    monkeypatch.setattr("anamorph.model.generator.shoot", lambda *_: shot.append(1))
    cohort = simulated.cohort_with(settings, still, latents, images)
    cohort.poses = poses[:, : settings.frame.n_coordinates]
    answers = [
        cohort.answer(question).scalar("log_likelihood")
        for question in ("shape_derivatives", "appearance_derivatives", "propose_latents")
    ]
    np.testing.assert_allclose(answers, answers[0], rtol=1e-6)
    assert not shot


@pytest.mark.parametrize("curvature", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("step", [1.0, 0.7])
def test_a_parabola_tells_where_it_is_highest(step, curvature):
    gain = 5 * (step - curvature * step**2 / 2)
    assert next_step(step, 5.0, gain) == pytest.approx(max(step / 2, 1 / curvature))


def test_steps_change_by_no_more_than_a_factor_and_stay_at_most_1():
    assert next_step(0.2, 1.0, 0.2) == 0.4  # no curvature was seen
    assert next_step(0.2, 1.0, -5.0) == 0.1
    assert next_step(0.9, 1.0, 0.9) == 1.0
    assert next_step(0.5, 0.0, 0.0) == 1.0
