"""Gains, offsets and fields of images on a GPU, beside those on the processor."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.model.intensity import match_intensities


@pytest.mark.parametrize("kind", ["per image", "smooth"])
@pytest.mark.parametrize("space", [(9, 8), (6, 5, 4)])
def test_what_is_matched(gpu, kind, space):
    draws = np.random.default_rng(0)
    expected = draws.random((3, 2, *space)).astype(np.float32)
    images = (1.5 * expected + 0.2 + 0.05 * draws.standard_normal(expected.shape)).astype("f4")
    images[:, :, 1] = np.nan
    here = match_intensities(images, expected, np.array([100.0, 50.0]), kind)
    there = match_intensities(
        gpu.asarray(images), gpu.asarray(expected), np.array([100.0, 50.0]), kind
    )
    for name in ("images", "log_density", "gain", "offset"):
        ours, theirs = getattr(here, name), getattr(there, name).get()
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_fit(gpu):
    """On the simulated GPU, a NumPy array among those of the device is an error."""
    images = np.random.default_rng(1).random((4, 6, 6)).astype(np.float32)
    options = {"intensity": "smooth", "n_iter": 1, "n_steps": 1, "device": "cuda"}
    model = ShapeAppearanceModel(1, **options).fit(images)
    assert np.isfinite(model.reconstruct(images)).all()
