"""Residual warps on a GPU, beside those on the processor: one source, the same numbers."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.model.residuals import ResidualDescent
from anamorph.model.unfolding import unfolded
from tests.model.test_residuals import blobs
from tests.model.test_unfolding import rough_velocity


@pytest.mark.parametrize("space", [(9, 8), pytest.param((7, 6, 5), marks=pytest.mark.long)])
def test_steps(gpu, space):
    images = blobs(space, 3)
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(images)
    found = []
    for generator in (model.generator_, model.generator_.on_gpu):
        bent = replace(generator, parameters=generator.parameters.with_residuals())
        seen, latents = bent.own(images[:, None]), bent.own(model.latents_)
        start = np.zeros_like(bent.velocity(latents))
        descent = ResidualDescent(bent, seen, latents, start, 0.5)
        descent.take_steps(2)
        residuals = descent.residuals()
        values = (residuals.velocity, residuals.energy, descent.determined(0))
        found.append([value.get() if hasattr(value, "get") else value for value in values])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0.02, atol=0.01 * np.abs(ours).max())


def test_folds_are_smoothed(gpu):
    space = (9, 8)
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(blobs(space, 3))
    rough, found = rough_velocity(space, [0.3, 8, 5]), []
    for generator in (model.generator_, model.generator_.on_gpu):
        modes_only = replace(generator, residual=None)
        smooth = unfolded(
            modes_only, modes_only.own(np.zeros((3, 1))), modes_only.own(rough.copy())
        )
        found.append(smooth.get() if hasattr(smooth, "get") else smooth)
    here, there = found
    np.testing.assert_array_equal(here[0], rough[0])
    assert np.abs(here[1:] - rough[1:]).max() > 0.1
    np.testing.assert_allclose(there, here, atol=1e-3)


def test_fits_agree(real_gpu):
    images = blobs((28, 24), 8)
    here, there = (
        ShapeAppearanceModel(2, n_iter=14, residual="inside", random_state=0, device=device).fit(
            images
        )
        for device in ("cpu", "cuda")
    )
    assert there.objective_[-1] == pytest.approx(here.objective_[-1], rel=1e-2)
    errors = [
        np.mean((model.inverse_transform(model.latents_, residuals=model.residuals_) - images) ** 2)
        for model in (here, there)
    ]
    assert errors[1] == pytest.approx(errors[0], rel=0.5)  # sums have no order there
    encoded = there.encode(images, residual=True)
    assert np.isfinite(encoded.residuals).all()
