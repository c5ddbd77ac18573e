"""Images with poses: what they see, what is outside, derivatives, and poses that are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import affine_transform, gaussian_filter

from anamorph.geometry import pull
from anamorph.geometry.coarsen import block_means
from anamorph.geometry.pose import pose_names
from anamorph.model.background import background_image, background_level, border_sums
from anamorph.model.encoding import encode
from anamorph.model.finding import find_poses, located
from anamorph.model.generator import Generator
from anamorph.model.pose_search import centre_poses, search_levels
from anamorph.model.pose_steps import improve_poses
from anamorph.model.posing import PosedGenerator, posed_sums
from tests.simulated import random_parameters, random_settings

LIKELIHOODS = ("gaussian", "bernoulli", "categorical", "poisson")


def posed_model(likelihood="gaussian", space=(24, 20), align="affine", **changes):
    settings = random_settings(likelihood, space=space, align=align, **changes)
    parameters = random_parameters(settings, motion=0.5)
    n_channels = settings.n_channels
    share = np.full(n_channels, 0.3) if likelihood != "categorical" else np.array([0.2, 0.2, 0.6])
    count = np.full(n_channels, 1000.0)
    background = background_level(settings.likelihood, count, 1000 * share, 1000 * (share**2 + 1))
    return Generator(settings, replace(parameters, background=background))


def blob(space, n_channels=1):
    """Return an object without symmetry, far from the borders, (C, *space)."""
    image = np.zeros(space, np.float32)
    middle = tuple(slice(n // 3, n - n // 3) for n in space)
    image[middle] = 1
    image[tuple(slice(n // 3, n // 3 + 2) for n in space)] = 3
    image[(space[0] // 2, *middle[1:])] = 2
    return np.repeat(gaussian_filter(image, 0.8)[None], n_channels, axis=0)


def template_model(image, align, likelihood="gaussian"):
    """Return a model that is nothing but a template on a dark background."""
    settings = random_settings(likelihood, space=image.shape[1:], align=align)
    settings = replace(settings, n_channels=len(image))
    parameters = random_parameters(settings)
    nothing = {
        name: np.zeros_like(getattr(parameters, name))
        for name in ("appearance_basis", "shape_basis")
    }
    ones = np.ones(len(image))
    background = np.stack([np.zeros(len(image)), 100 * ones])
    parameters = replace(
        parameters, mean=image, noise_precision=100 * ones, background=background, **nothing
    )
    return Generator(settings, parameters)


def moved(image, frame, poses, order=1):
    """Return an image seen through poses, by SciPy, (N, C, *space)."""
    found = []
    for matrix in frame.matrices(poses):
        linear = matrix[:, :-1]
        offset = matrix[:, -1] + frame.centre - linear @ frame.centre
        found.append([affine_transform(one, linear, offset, order=order) for one in image])
    return np.asarray(found, np.float32)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_pose_of_rest_changes_nothing_inside(likelihood):
    generator = posed_model(likelihood)
    latents = 0.3 * np.random.default_rng(0).standard_normal((2, 3))
    poses = np.zeros((2, 6))
    posed = PosedGenerator.of(generator, poses)
    displacement, appearance = generator.displacement(latents), generator.appearance(latents)
    inside = posed.observed(np.zeros_like(appearance), displacement)[:, 0] == 0
    assert inside.mean() > 0.8
    for channel in range(appearance.shape[1]):
        there = posed.warp(appearance, displacement)[:, channel][inside]
        np.testing.assert_allclose(
            there, generator.warp(appearance, displacement)[:, channel][inside], atol=1e-5
        )


@pytest.mark.parametrize("space", [(20, 18), (14, 12, 10)])
def test_pose_and_warp_are_composed_and_the_appearance_is_interpolated_once(space):
    generator = posed_model(space=space)
    n_dims = len(space)
    poses = 0.05 * np.random.default_rng(1).standard_normal((2, len(pose_names("affine", n_dims))))
    latents = 0.3 * np.random.default_rng(0).standard_normal((2, 3))
    posed = PosedGenerator.of(generator, poses)
    appearance, displacement = generator.appearance(latents), generator.displacement(latents)
    frame = generator.settings.frame
    there = frame.places(frame.matrices(poses), appearance) - np.indices(space)
    total = pull(displacement, there) + there  # psi(R x) - x
    np.testing.assert_allclose(posed.placed(displacement), total, atol=1e-4)
    outside = np.isnan(posed.observed(np.zeros_like(appearance), displacement))
    expected = np.where(
        outside,
        generator.parameters.background[0].reshape(-1, *(1,) * n_dims),
        pull(appearance, total),
    )
    np.testing.assert_allclose(posed.warp(appearance, displacement), expected, atol=1e-4)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_background_has_the_values_of_the_borders(likelihood):
    generator = posed_model(likelihood)
    expected = background_image(generator.settings, generator.parameters.known_background)
    share = [0.2, 0.2, 0.6] if likelihood == "categorical" else 0.3
    np.testing.assert_allclose(expected, share, atol=0.01)


def test_images_do_not_gain_by_leaving():
    image = blob((24, 20))
    generator = template_model(image, "translation")
    values = []
    for shift in (0.0, 6.0, 12.0, 30.0, 200.0):
        posed = PosedGenerator.of(generator, np.array([[shift, 0.0]]))
        values.append(posed.log_likelihood(image[None], None, image[None])[0])
    assert np.argmax(values) == 0
    # Nothing that is outside is missing: all voxels count, wherever the template is.
    n_voxels = image.size
    far = -0.5 * 100 * np.square(image).sum() + 0.5 * n_voxels * np.log(100 / (2 * np.pi))
    prior = generator.settings.frame.log_prior(np.array([[200.0, 0.0]]))[0]
    assert values[-1] == pytest.approx(far + prior, rel=1e-5)


@pytest.mark.parametrize("contrast", [0.02, 1.0, 50.0])
def test_images_with_gains_do_not_gain_by_leaving(contrast):
    """A crop that shows no background, whatever the unit of its intensities."""
    draws = np.random.default_rng(3)
    texture = gaussian_filter(draws.standard_normal((24, 20)), 1.5).astype(np.float32)
    texture = 1 + contrast * texture[None] / texture.std()
    image = texture + contrast * 0.3 * draws.standard_normal(texture.shape).astype(np.float32)
    generator = template_model(texture, "translation")
    count, total, squares = border_sums(texture[None])
    background = background_level(generator.settings.likelihood, count, total, squares)
    precision = np.array([1 / (contrast * 0.3) ** 2])
    generator = Generator(
        replace(generator.settings, intensity="per image"),
        replace(generator.parameters, noise_precision=precision, background=background),
    )
    values = []
    for shift in (0.0, 6.0, 12.0, 18.0, 40.0):
        posed = PosedGenerator.of(generator, np.array([[shift, 0.0]]))
        values.append(posed.log_likelihood(texture[None], None, image[None])[0])
    assert np.argmax(values) == 0


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("space", [(30, 26), (16, 15, 14)])
def test_derivatives_with_respect_to_poses(likelihood, space):
    generator = posed_model(likelihood, space)
    n_dims = len(space)
    draws = np.random.default_rng(2)
    # Smooth enough for differences of linear interpolation to be those of the image.
    mean = gaussian_filter(generator.parameters.mean, (0, *(2.5,) * n_dims), mode="wrap")
    mean *= 2 / mean.std()
    if likelihood == "poisson":
        mean /= 4
    generator = replace(
        generator, parameters=replace(generator.parameters, mean=mean.astype(np.float32))
    )
    latents, poses = (
        0.3 * draws.standard_normal((1, 3)),
        0.02 * draws.standard_normal((1, len(pose_names("affine", n_dims)))),
    )
    appearance, displacement = generator.appearance(latents), generator.displacement(latents)
    images = generator.settings.likelihood.draw(
        generator.settings.likelihood.expectation(mean[None]), np.ones(len(mean)), draws
    )
    is_seen = np.zeros(space, bool)
    is_seen[tuple(slice(4, -4) for _ in space)] = True
    images = np.where(is_seen, images, np.nan).astype(np.float32)
    frame = generator.settings.frame

    def value(step):
        there = frame.composed(step, poses)
        posed = PosedGenerator.of(generator, there)
        found = posed.log_likelihood(appearance, displacement, images)[0]
        return found - frame.log_prior(there)[0]

    posed = PosedGenerator.of(generator, poses)
    _, gradient, hessian = posed.pose_derivatives(appearance, displacement, images)
    length = 0.02
    numerical = [
        -(value(length * one[None]) - value(-length * one[None])) / (2 * length)
        for one in np.eye(poses.shape[1])
    ]
    scale = np.sqrt(np.diag(hessian[0]))  # of what a coordinate does to the image
    # Gradients are central differences, interpolated; those of what is interpolated jump.
    error = np.linalg.norm((gradient[0] - numerical) / scale)
    assert error < 0.35 * np.linalg.norm(numerical / scale)
    assert np.linalg.eigvalsh(hessian[0]).min() > 0


@pytest.mark.parametrize("align", ["translation", "rigid", "similarity", "affine"])
def test_steps_find_a_small_pose_and_never_do_harm(align):
    image = blob((30, 26))
    generator = template_model(image, align)
    frame = generator.settings.frame
    n_coordinates = frame.n_coordinates
    truth = np.random.default_rng(3).uniform(-1, 1, (4, n_coordinates))
    truth *= np.where(np.arange(n_coordinates) < 2, 1.5, 0.08)
    images = moved(image, frame, truth)
    appearance = np.repeat(image[None], 4, axis=0)
    found = improve_poses(generator, images, appearance, None, np.zeros_like(truth), n_steps=20)
    before = PosedGenerator.of(generator, np.zeros_like(truth)).log_likelihood(
        appearance, None, images
    )
    assert (found.log_likelihood >= before).all()
    np.testing.assert_allclose(found.poses[:, :2], truth[:, :2], atol=0.1)
    np.testing.assert_allclose(found.poses[:, 2:], truth[:, 2:], atol=0.02)


@pytest.mark.parametrize("share_missing", [0.0, 0.25])
@pytest.mark.parametrize("space", [(40, 36), (16, 18, 14)])
def test_poses_that_are_far_away_are_found(space, share_missing):
    image = blob(space)
    generator = template_model(image, "similarity")
    frame, draws, n_dims = generator.settings.frame, np.random.default_rng(4), len(space)
    number = 4
    truth = np.zeros((number, frame.n_coordinates))
    truth[:, :n_dims] = draws.uniform(-0.2, 0.2, (number, n_dims)) * space
    turns = draws.standard_normal((number, frame.n_coordinates - n_dims - 1))
    turns *= np.deg2rad(30) / np.linalg.norm(turns, axis=1, keepdims=True)
    truth[:, n_dims:-1], truth[:, -1] = turns, draws.uniform(-0.2, 0.2, number)
    images = moved(image, frame, truth)
    for one in images if share_missing else ():
        side = [round(n * share_missing ** (1 / n_dims)) for n in space]
        corner = [draws.integers(0, n - length) for n, length in zip(space, side, strict=True)]
        one[(0, *(slice(c, c + n) for c, n in zip(corner, side, strict=True)))] = np.nan
    error = frame.composed(find_poses(generator, images), -truth)
    is_found = frame.motion(error) < 1
    assert is_found.mean() >= (0.75 if share_missing else 1.0)


def test_larger_voxels_are_means_of_what_is_seen():
    images = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    images[0, 0, 0, 0] = np.nan
    images[0, 0, 2, 2:] = np.nan
    found = block_means(images, (2, 2))
    assert found.shape == (1, 1, 2, 2)
    np.testing.assert_allclose(found[0, 0], [[(1 + 4 + 5) / 3, 4.5], [8.5, np.nan]])


def test_centres_of_mass_come_to_the_centre():
    space = (30, 26)
    frame = template_model(blob(space), "rigid").settings.frame
    image = np.roll(blob(space), (5, -4), axis=(1, 2))[None] + 0.2
    found = centre_poses(image, np.array([[0.2], [0.0]]), frame)[0]
    np.testing.assert_allclose(found, [-5, 4, 0], atol=0.5)
    empty = np.full((1, 1, *space), 0.2, np.float32)
    np.testing.assert_allclose(centre_poses(empty, np.array([[0.2], [0.0]]), frame), 0, atol=1e-6)


def test_sums_of_posed_images_are_on_the_template():
    image = blob((30, 26))
    frame = template_model(image, "translation").settings.frame
    truth = np.array([[3.0, -2.0], [-4.0, 5.0]])
    count, total, _ = posed_sums(moved(image, frame, truth), truth, frame)
    seen = count[0] > 1.5
    np.testing.assert_allclose((total / np.maximum(count, 1))[0][seen], image[0][seen], atol=0.05)
    counted, summed, squared = border_sums(np.ones((2, 1, 5, 4), np.float32))
    assert counted[0] == summed[0] == squared[0] == 2 * (20 - 6)


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_new_images_are_encoded_at_their_poses(likelihood):
    generator = posed_model(likelihood, (24, 22), "rigid")
    # Nothing but background around the template, so that images can be told where they are.
    window = np.zeros((24, 22), np.float32)
    window[6:-6, 6:-6] = 1
    window = gaussian_filter(window, 1.0)
    level = generator.parameters.known_background[0].reshape(-1, 1, 1)
    parameters = generator.parameters
    parameters = replace(
        parameters,
        mean=(level + window * 3 * (parameters.mean - level)).astype(np.float32),
        appearance_basis=(window * parameters.appearance_basis).astype(np.float32),
        noise_precision=np.full(len(parameters.mean), 50.0),
    )
    generator = Generator(generator.settings, parameters)
    truth = np.array([[2.0, -1.0, 0.4], [-3.0, 2.0, -0.3]])
    latents = 0.5 * np.random.default_rng(5).standard_normal((2, 3))
    images = PosedGenerator.of(generator, truth).expected_images(latents).astype(np.float32)
    here = located(generator, images)
    found = encode(here, images).latents
    again = here.expected_images(found)
    away = generator.expected_images(encode(generator, images).latents)
    left, without = (np.square(images - one).sum() for one in (again, away))
    assert left < 0.1 * np.square(images - images.mean()).sum()
    assert left < 0.5 * without
    error = generator.settings.frame.composed(here.poses, -truth)
    assert generator.settings.frame.motion(error).max() < 1.5


def test_levels_end_with_the_model():
    settings = random_settings("gaussian", space=(48, 40), align="rigid")
    levels = search_levels(settings)
    assert [frame.space for frame in levels] == [(12, 10), (24, 20), (48, 40)]
