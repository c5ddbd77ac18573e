"""Residual warps of new images: with latents that go with them, and nothing pressed to nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.geometry import jacobian_determinant, shoot_both
from anamorph.model.bending import _hide_pressed, _released, bend
from anamorph.model.posing import PosedGenerator
from anamorph.model.residuals import ResidualDescent
from tests.model.test_residuals import blobs

_PRECISION = 0.1


@pytest.fixture(scope="module")
def fitted():
    """Return a generator with the noise of residual warps, images (N, 1, *space) and latents."""
    images = blobs((16, 20), 4)[:, None]
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(images[:, 0])
    generator = model.generator_
    generator = replace(generator, parameters=generator.parameters.with_residuals())
    return generator, images, model.latents_


def smallest_determinants(generator, latents, velocity):
    s = generator.settings
    total = generator.velocity(latents) + velocity
    both = shoot_both(total, s.shape_penalty, s.voxel_size, s.n_steps)
    return np.min([jacobian_determinant(warp).min(axis=(1, 2)) for warp in both], axis=0)


def rough_velocity(images, sizes):
    """Return smooth random velocities (N, d, *space) with largest components of these sizes."""
    rough = np.random.default_rng(0).standard_normal((len(images), 2, *images.shape[2:]))
    velocity = gaussian_filter(rough, (0, 0, 2, 2), mode="wrap").astype(np.float32)
    return velocity * np.reshape(sizes, (-1, 1, 1, 1)).astype(np.float32) / np.abs(velocity).max()


def test_only_warps_that_nearly_fold_are_released(fitted):
    generator, images, latents = fitted
    latents = np.zeros_like(latents)
    velocity = rough_velocity(images, [0, 0.5, 11, 9])
    before = smallest_determinants(generator, latents, velocity)
    assert (before[:2] > 0.1).all()
    assert (before[2:] < 0.1).all()
    descent = ResidualDescent(generator, images, latents, velocity, _PRECISION)
    released = _released(generator, images.copy(), latents, descent)
    np.testing.assert_array_equal(released[:2], velocity[:2])
    assert (smallest_determinants(generator, latents, released) >= 0.1).all()


def test_descents_of_some_images_continue_with_what_was_learnt(fitted):
    generator, images, latents = fitted
    zero, some = np.zeros_like(generator.velocity(latents)), np.array([1, 3])
    whole = ResidualDescent(generator, images, latents, zero, _PRECISION)
    few = ResidualDescent(generator, images[some], latents[some], zero[some], _PRECISION)
    for descent in (whole, few):
        descent.take_steps(3)
    moved = whole.moved_to(generator, images[some], latents[some], some)
    before = whole.residuals().velocity.copy()
    for descent in (moved, few):
        descent.take_steps(2)
    np.testing.assert_allclose(
        moved.residuals().log_likelihood, few.residuals().log_likelihood, rtol=1e-3
    )
    np.testing.assert_array_equal(whole.residuals().velocity, before)


def test_what_is_hidden_is_around_pressed_places_alone(fitted):
    generator, images, latents = fitted
    velocity, everyone = rough_velocity(images, [0, 0.5, 11, 9]), np.arange(len(images))
    latents = np.zeros_like(latents)
    s = generator.settings
    warps, inverses = shoot_both(velocity, s.shape_penalty, s.voxel_size, s.n_steps)
    for radius in (1, 2):
        observed = images.copy()
        which = _hide_pressed(generator, observed, latents, velocity, everyone, radius)
        assert list(which) == [2, 3]
        hidden = np.isnan(observed[:, 0])
        assert not hidden[:2].any()
        pressed = jacobian_determinant(warps) < 0.1
        assert hidden[pressed].all()
        np.testing.assert_array_equal(observed[~hidden[:, None]], images[~hidden[:, None]])
        # Every hidden voxel has a pressed one nearby: in the image, or where the template has one.
        centres = [tuple(place) for place in np.argwhere(pressed)]
        for n, i, j in np.argwhere(jacobian_determinant(inverses) < 0.1):
            place = np.rint((i, j) + inverses[n, :, i, j]).astype(int) % (16, 20)
            centres.append((n, *place))
        for n, i, j in np.argwhere(hidden):
            distances = [
                max(min(abs(i - a), 16 - abs(i - a)), min(abs(j - b), 20 - abs(j - b)))
                for m, a, b in centres
                if m == n
            ]
            assert min(distances) <= radius


def test_images_with_a_pose_are_hidden_where_they_lie(fitted):
    generator, images, latents = fitted
    latents = np.zeros_like(latents)
    settings = replace(generator.settings, align="translation")
    posed = replace(generator, settings=settings)
    velocity, everyone = rough_velocity(images, [0, 0.5, 11, 9]), np.arange(len(images))
    seen = {}
    for shift in (0.0, 3.0):
        poses = np.zeros((len(images), settings.frame.n_coordinates))
        poses[:, 0] = shift
        observed = images.copy()
        there = PosedGenerator.of(posed, poses)
        _hide_pressed(there, observed, latents, velocity, everyone, 1)
        seen[shift] = np.isnan(observed[2:, 0])
    moved = np.roll(seen[0.0], -3, axis=1)
    inside = (slice(None), slice(3, -3))
    np.testing.assert_array_equal(seen[3.0][inside], moved[inside])


def test_latents_and_residual_warps_together_explain_more(fitted):
    generator, images, latents = fitted
    start = images.copy()
    found, velocity = bend(generator, images, latents, _PRECISION)
    np.testing.assert_array_equal(images, start)  # what is hidden is hidden in a copy

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
