"""Residual warps of images, given a model: exact gradients, steps that do no harm, the trace."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry import momentum, shoot
from anamorph.geometry.warps import pull_batch
from anamorph.model.residuals import ResidualDescent, improve_residuals
from anamorph.solvers import solve_velocity

_PRECISION = 0.3


def blobs(space, n_images, seed=0):
    """Return smooth images with several bright places, (N, *space)."""
    draws = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.arange(length) for length in space), indexing="ij")
    images = np.zeros((n_images, *space), np.float32)
    for _ in range(4):
        centre = draws.uniform(0.3, 0.7, len(space)) * space
        for image in images:
            place = centre + draws.normal(0, 0.7, len(space))
            squares = sum((axis - c) ** 2 for axis, c in zip(axes, place, strict=True))
            image += np.exp(-squares / 8)
    return images


@pytest.fixture(scope="module", params=[(16, 20), (10, 12, 8)], ids=["2D", "3D"])
def fitted(request):
    """Return a model with residual warps, and images (N, 1, *space) that it was fitted to."""
    images = blobs(request.param, 8)
    model = ShapeAppearanceModel(2, n_iter=4, residual="after", random_state=0).fit(images)
    return model, images[:, None]


def start_of(model, images):
    generator = model.generator_
    generator = replace(generator, parameters=generator.parameters.with_residuals())
    return generator, model.latents_, np.zeros((len(images), *model.shape_basis_.shape[1:]), "f4")


def test_the_gradient_is_that_of_the_value(fitted):
    model, images = fitted
    generator, latents, _ = start_of(model, images)
    draws = np.random.default_rng(0)
    smooth = generator.velocity(draws.standard_normal(latents.shape))
    here = ResidualDescent(generator, images, latents, 0.3 * smooth, _PRECISION)._here
    step = generator.velocity(draws.standard_normal(latents.shape))
    step *= 0.001 / np.abs(step).max()
    after, before = (
        ResidualDescent(
            generator, images, latents, here.velocity + sign * step, _PRECISION
        )._here.value
        for sign in (1, -1)
    )
    expected = -(here.gradient * step).reshape(len(images), -1).sum(axis=1)
    # Interpolation has kinks: where one is near, the slopes on both sides of it differ.
    slopes = np.sort([after - here.value, here.value - before], axis=0)
    room = 0.01 * np.abs(expected).max()
    assert (expected > slopes[0] - room).all()
    assert (expected < slopes[1] + room).all()
    assert np.abs(slopes.mean(axis=0) - expected).mean() < room


def test_steps_do_no_harm_and_help(fitted):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    before = ResidualDescent(generator, images, latents, zero, _PRECISION).residuals()
    after = improve_residuals(generator, images, latents, zero, _PRECISION, n_steps=10)
    gain = (after.log_likelihood - _PRECISION * after.energy / 2) - before.log_likelihood
    assert (gain >= -1e-3).all()
    assert gain.mean() > 1
    assert (before.energy == 0).all()
    assert (after.improved[gain > 1e-3]).all()


def test_energy_and_displacement_are_those_of_the_velocity(fitted):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    found = improve_residuals(generator, images, latents, zero, _PRECISION, n_steps=4)
    s = generator.settings
    product = momentum(found.velocity, s.shape_penalty, s.voxel_size) * found.velocity
    np.testing.assert_allclose(found.energy, product.reshape(len(images), -1).sum(1), rtol=1e-3)
    total = generator.velocity(latents) + found.velocity
    expected = shoot(total, s.shape_penalty, s.voxel_size, s.n_steps)
    np.testing.assert_allclose(found.displacement, expected, atol=1e-4)


def test_an_image_takes_no_more_steps_once_it_gains_little(fitted, monkeypatch):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    # The first image is what its latents say, and has nothing to gain; others have.
    settled = images.copy()
    settled[:1] = generator.warp(
        generator.appearance(latents[:1]), generator.displacement(latents[:1])
    )
    taken = []

    def taking(descent, active, *others, step=ResidualDescent._step):
        taken.append(active)
        return step(descent, active, *others)

    monkeypatch.setattr(ResidualDescent, "_step", taking)
    improve_residuals(generator, settled, latents, zero, _PRECISION, n_steps=60)
    assert len(taken) < 60
    assert sum(0 in active for active in taken) < len(taken)


def test_finished_images_are_left_out_and_change_nothing(fitted):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    settled = images.copy()
    settled[:1] = generator.warp(
        generator.appearance(latents[:1]), generator.displacement(latents[:1])
    )

    def gain(found, some):
        before = ResidualDescent(
            generator, settled[some], latents[some], zero[some], _PRECISION
        ).residuals()
        return found.log_likelihood - _PRECISION * found.energy / 2 - before.log_likelihood

    found = improve_residuals(generator, settled, latents, zero, _PRECISION, n_steps=20)
    together = gain(found, slice(None))
    assert found.energy[0] < 1e-6
    # Systems of several images are solved together, up to a tolerance.
    for n in range(3):
        one = slice(n, n + 1)
        alone = improve_residuals(
            generator, settled[one], latents[one], zero[one], _PRECISION, n_steps=20
        )
        np.testing.assert_allclose(together[one], gain(alone, one), rtol=2e-3, atol=1e-6)


def test_a_warp_beyond_the_modes_is_found(fitted):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    s = generator.settings
    draws = np.random.default_rng(5)
    hidden = draws.standard_normal((len(images), *zero.shape[1:])).astype(np.float32)
    from scipy.ndimage import gaussian_filter

    hidden = gaussian_filter(hidden, (0, 0, *(2.5,) * s.n_dims), mode="wrap")
    hidden *= 1.2 / np.abs(hidden).max()
    truth = shoot(generator.velocity(latents) + hidden, s.shape_penalty, s.voxel_size, s.n_steps)
    seen = pull_batch(generator.appearance(latents), truth)
    sure = replace(
        generator, parameters=replace(generator.parameters, noise_precision=np.array([1e4]))
    )
    found = improve_residuals(sure, seen, latents, zero, 0.01, n_steps=60)
    errors = [
        np.mean((generator.warp(generator.appearance(latents), warp) - seen) ** 2)
        for warp in (generator.displacement(latents), found.displacement)
    ]
    assert errors[1] < 0.1 * errors[0]


def test_every_image_has_random_signs_of_its_own(fitted):
    """Where all had the same signs, the error of the trace was that of one image."""
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    same = [np.repeat(some[:1], len(images), axis=0) for some in (images, latents, zero)]
    descent = ResidualDescent(generator, *same, _PRECISION)
    found = descent.determined(0)
    assert len(np.unique(found)) == len(images)
    np.testing.assert_allclose(descent.determined(0, first=1)[:-1], found[1:], rtol=1e-3)


def test_the_trace_is_estimated(fitted):
    model, images = fitted
    generator, latents, zero = start_of(model, images)
    descent = ResidualDescent(generator, images, latents, zero, _PRECISION)
    estimates = np.mean([descent.determined(seed) for seed in range(12)], axis=0)
    n_numbers = zero[0].size
    assert (estimates > 0).all()
    assert (estimates < n_numbers).all()
    # The trace by definition, of one image: a system for each coordinate.
    basis = np.eye(n_numbers, dtype=np.float32).reshape(n_numbers, *zero.shape[1:])
    if n_numbers > 1000:
        basis = basis[np.random.default_rng(0).choice(n_numbers, 150, replace=False)]
    hessian = np.repeat(descent._here.hessian(np.arange(1)), len(basis), axis=0)
    from anamorph.model.residuals import _multiplied

    s = generator.settings
    weights = s.shape_penalty, s.voxel_size
    solved = solve_velocity(hessian, basis, *weights, weight=_PRECISION, tolerance=1e-3).x
    diagonal = (_multiplied(hessian, basis) * solved).reshape(len(basis), -1).sum(axis=1)
    exact = diagonal.mean() * n_numbers
    assert abs(estimates[0] - exact) < 0.35 * exact


def test_missing_voxels_and_poses():
    images = blobs((16, 20), 8)[:, None]
    hidden = images[:, 0].copy()
    hidden[:, :4, 2:5] = np.nan
    model = ShapeAppearanceModel(
        2, n_iter=3, residual="after", align="translation", random_state=0
    ).fit(hidden)
    encoded = model.encode(hidden, residual=True)
    assert np.isfinite(encoded.residuals).all()
    modes = model.log_likelihood(hidden, encoded.latents, encoded.poses)
    bent = model.expected_images(encoded.latents, "both", encoded.poses, encoded.residuals)
    plain = model.expected_images(encoded.latents, "both", encoded.poses)
    errors = [np.nanmean((some[:, 0] - hidden) ** 2) for some in (bent, plain)]
    assert np.isfinite(modes).all()
    assert errors[0] < errors[1]
