"""Residual warps that nearly fold: images with such warps are firmed, others stay as they were."""

import numpy as np
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.geometry import jacobian_determinant, shoot_both
from anamorph.model.firming import firm_residuals
from tests.model.test_residuals import blobs


def smallest_determinants(generator, latents, velocity):
    s = generator.settings
    total = generator.velocity(latents) + velocity
    both = shoot_both(total, s.shape_penalty, s.voxel_size, s.n_steps)
    return np.min([jacobian_determinant(warp).min(axis=(1, 2)) for warp in both], axis=0)


def test_only_warps_that_nearly_fold_become_firmer():
    images = blobs((16, 20), 4)[:, None]
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(images[:, 0])
    generator, latents = model.generator_, np.zeros_like(model.latents_)
    rough = np.random.default_rng(0).standard_normal((4, 2, 16, 20))
    velocity = gaussian_filter(rough, (0, 0, 2, 2), mode="wrap").astype(np.float32)
    velocity *= np.reshape([0.0, 1.0, 22.0, 18.0], (4, 1, 1, 1)) / np.abs(velocity).max() / 2
    before = smallest_determinants(generator, latents, velocity)
    assert (before[:2] > 0.1).all()
    assert (before[2:] < 0.1).all()
    firm = firm_residuals(generator, images, latents, velocity, precision=0.1)
    np.testing.assert_array_equal(firm[:2], velocity[:2])
    assert (smallest_determinants(generator, latents, firm) >= 0.1).all()
