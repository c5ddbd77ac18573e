"""Poses on a GPU, beside poses on the processor: one source, the same numbers."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.model.finding import find_poses
from anamorph.model.posing import PosedGenerator, posed_sums
from tests.model.test_posing import blob, moved, posed_model, template_model


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
@pytest.mark.parametrize("space", [(9, 8), (7, 6, 5)])
def test_what_posed_images_see(gpu, likelihood, space):
    here = posed_model(likelihood, space)
    there = here.on_gpu
    draws = np.random.default_rng(0)
    latents = 0.3 * draws.standard_normal((2, 3))
    poses = 0.1 * draws.standard_normal((2, here.settings.frame.n_coordinates))
    images = here.settings.likelihood.draw(
        here.expected_images(latents), np.ones(here.settings.n_channels), draws
    )
    images[:, :, 1] = np.nan
    found = []
    for generator in (here, there):
        posed = PosedGenerator.of(generator, poses)
        own = generator.own(latents)
        appearance, displacement = generator.appearance(own), generator.displacement(own)
        seen = generator.own(images)
        values = [
            *posed.pose_derivatives(appearance, displacement, seen),
            posed.unposed(seen),
            posed.expected_images(own),
            *posed_sums(seen, poses, here.settings.frame),
        ]
        found.append([value.get() if hasattr(value, "get") else value for value in values])
    for ours, theirs in zip(*found, strict=True):
        scale = np.nanmax(np.abs(ours))
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-4 * scale)


def test_poses_are_found(real_gpu):
    image = blob((32, 28, 24))
    generator = template_model(image, "affine")
    frame = generator.settings.frame
    truth = np.random.default_rng(1).uniform(-1, 1, (4, 12)) * ([4] * 3 + [0.3] * 3 + [0.1] * 6)
    images = moved(image, frame, truth)
    on_gpu = generator.on_gpu
    ours, theirs = find_poses(generator, images), find_poses(on_gpu, on_gpu.own(images))
    assert frame.motion(frame.composed(ours, -theirs)).max() < 0.05


def test_fits_agree(real_gpu):
    image = blob((28, 24))
    frame = template_model(image, "rigid").settings.frame
    truth = np.random.default_rng(2).uniform(-1, 1, (8, 3)) * [4, 4, 0.4]
    images = moved(image, frame, truth)[:, 0]
    here, there = (
        ShapeAppearanceModel(2, align="rigid", n_iter=3, device=device).fit(images)
        for device in ("cpu", "cuda")
    )
    assert frame.motion(frame.composed(here.poses_, -there.poses_)).max() < 0.05
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-3)
    np.testing.assert_allclose(there.reconstruct(images), here.reconstruct(images), atol=0.05)
