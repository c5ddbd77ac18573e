"""Residual warps of new images, with latents that go with them."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.model.bending import bend
from anamorph.model.residuals import ResidualDescent
from tests.model.test_residuals import blobs

_PRECISION = 5.0


@pytest.fixture(scope="module")
def fitted():
    """Return a generator with the noise of residual warps, images (N, 1, *space) and latents."""
    images = blobs((16, 20), 4)[:, None]
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(images[:, 0])
    generator = model.generator_
    generator = replace(generator, parameters=generator.parameters.with_residuals())
    return generator, images, model.latents_


def test_descents_continue_with_what_was_learnt(fitted):
    """With other latents and back, steps are those of a descent that knows their curvature."""
    generator, images, latents = fitted
    zero = np.zeros_like(generator.velocity(latents))
    plain, moved, anew = (
        ResidualDescent(generator, images, latents, zero, _PRECISION) for _ in range(3)
    )
    for descent in (plain, moved, anew):
        descent.take_steps(3)
    velocity = moved.residuals().velocity
    moved.move_to(generator, latents + 1, velocity)
    moved.move_to(generator, latents, velocity)
    anew = ResidualDescent(generator, images, latents, anew.residuals().velocity, _PRECISION)
    for descent in (plain, moved, anew):
        descent.take_steps(2)
    found, expected, forgetful = (d.residuals().log_likelihood for d in (moved, plain, anew))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not np.allclose(forgetful, expected, rtol=1e-5)


def test_latents_and_residual_warps_together_explain_more(fitted):
    generator, images, latents = fitted
    found, velocity = bend(generator, images, latents, _PRECISION)

    def value(latents, velocity):
        here = ResidualDescent(generator, images, latents, velocity, _PRECISION).residuals()
        return here.log_likelihood - _PRECISION * here.energy / 2 + generator.log_prior(latents)

    assert (value(found, velocity) > value(latents, np.zeros_like(velocity)) + 1).all()
    alone = ResidualDescent(generator, images, latents, np.zeros_like(velocity), _PRECISION)
    alone.take_steps(45)
    one_after_the_other = value(latents, alone.residuals().velocity)
    assert value(found, velocity).mean() > one_after_the_other.mean()


def test_an_image_is_bent_alone_as_in_company(fitted):
    """Images that rest while others take steps forget nothing of what they have learnt."""
    generator, _, _ = fitted
    images = blobs((16, 20), 9)[:, None]
    images[::2] += 0.1 * np.random.default_rng(0).standard_normal(images[::2].shape)
    images = images.astype(np.float32)
    start = np.zeros((len(images), 1))
    latents, velocity = bend(generator, images, start, _PRECISION)
    for n in range(len(images)):
        some = slice(n, n + 1)
        own, alone = bend(generator, images[some], start[some], _PRECISION)
        np.testing.assert_allclose(own, latents[some], atol=0.01)
        np.testing.assert_allclose(alone, velocity[some], atol=0.02)
