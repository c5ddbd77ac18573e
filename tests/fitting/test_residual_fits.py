"""Fits with residual warps: inside of every iteration, or after the last."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.fitting import em
from anamorph.geometry import jacobian_determinant
from anamorph.model.checks import ArgumentError
from anamorph.model.folding import find_folds
from examples.warps.landmarks import drawn, spreads
from tests.model.test_residuals import blobs

SPACE = (16, 20)


@pytest.fixture(scope="module")
def images():
    return blobs(SPACE, 10, seed=3)


INSIDE = {"n_iter": 14, "residual": "inside", "decimation": 1.0, "random_state": 0}


@pytest.fixture(scope="module")
def inside(images):
    """Fitted to images without noise, every voxel of which is taken at its word."""
    return ShapeAppearanceModel(2, **INSIDE).fit(images)


@pytest.fixture(scope="module")
def after(images):
    return ShapeAppearanceModel(2, n_iter=4, residual="after", random_state=0).fit(images)


def error(model, images, **more):
    return float(np.mean((model.inverse_transform(model.latents_, **more) - images) ** 2))


def test_the_objective_rises(inside):
    assert len(inside.objective_) == 14
    assert np.diff(inside.objective_).min() >= 0


def test_a_fit_after_which_they_are_found_is_the_same_fit(images, after):
    plain = ShapeAppearanceModel(2, n_iter=4, random_state=0).fit(images)
    np.testing.assert_array_equal(after.mean_, plain.mean_)
    np.testing.assert_array_equal(after.latents_, plain.latents_)
    np.testing.assert_allclose(after.noise_variance_, plain.noise_variance_, rtol=1e-6)
    assert plain.residuals_ is None


@pytest.mark.parametrize("when", ["inside", "after"])
def test_they_explain_what_modes_cannot(request, images, when):
    model = request.getfixturevalue(when)
    assert model.residuals_.shape == (len(images), 2, *SPACE)
    bent = error(model, images, residuals=model.residuals_)
    assert bent < 0.7 * error(model, images)
    precision, noise = model.generator_.parameters.residual
    assert 1e-2 < precision < 1e5
    assert noise == pytest.approx(1 / bent, rel=0.5)


@pytest.mark.parametrize("when", ["inside", "after"])
def test_they_are_found_for_new_images(request, when):
    model, others = request.getfixturevalue(when), blobs(SPACE, 6, seed=3)[::-1].copy()
    encoded = model.encode(others, residual=True)
    plain = model.inverse_transform(encoded.latents)
    bent = model.inverse_transform(encoded.latents, residuals=encoded.residuals)
    assert np.mean((bent - others) ** 2) < 0.8 * np.mean((plain - others) ** 2)
    warps = model.displacement(encoded.latents, residuals=encoded.residuals)
    assert jacobian_determinant(warps).min() > 0


def test_the_template_becomes_sharper(images, inside):
    plain = ShapeAppearanceModel(2, n_iter=14, random_state=0).fit(images)

    def sharpness(model):
        return sum(np.sum(slope**2) for slope in np.gradient(model.mean_[0]))

    assert sharpness(inside) > sharpness(plain)


@pytest.mark.parametrize("n_done", [6, 12])
@pytest.mark.parametrize("decimation", [1.0, "auto"])
def test_a_fit_resumes_with_them(tmp_path, images, n_done, decimation):
    """Also after the weight of voxels was found, in the 11th iteration."""
    arguments = INSIDE | {"decimation": decimation}

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.n_done == n_done:
            raise StopError

    path = tmp_path / "fit.checkpoint"
    model = ShapeAppearanceModel(2, **arguments)
    with pytest.raises(StopError):
        model.fit(images, checkpoint=path, callback=stop)
    model.fit(images, checkpoint=path)
    whole = ShapeAppearanceModel(2, **arguments).fit(images)
    np.testing.assert_array_equal(model.mean_, whole.mean_)
    np.testing.assert_array_equal(model.residuals_, whole.residuals_)
    assert model.objective_ == whole.objective_


def test_models_keep_their_precision(tmp_path, images, inside):
    inside.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        loaded.generator_.parameters.residual, inside.generator_.parameters.residual
    )
    one, other = (model.encode(images[:2], residual=True) for model in (inside, loaded))
    np.testing.assert_array_equal(one.residuals, other.residuals)


def test_images_and_points_follow_them_to_the_template_and_back(images, inside):
    encoded = inside.encode(images, residual=True)
    moved = inside.to_template(images, encoded.latents, residuals=encoded.residuals)
    plain = inside.to_template(images, encoded.latents)
    assert np.var(moved, axis=0).mean() < np.var(plain, axis=0).mean()
    np.testing.assert_array_equal(moved, inside.to_template(images))
    inverse = inside.displacement(encoded.latents, inverse=True, residuals=encoded.residuals)
    determinants = inside.jacobians(encoded.latents, residuals=encoded.residuals)
    np.testing.assert_allclose(determinants, jacobian_determinant(inverse), rtol=1e-5)


def test_grids_from_coarse_to_fine_find_them_on_the_last(images):
    larger = np.kron(images, np.ones((1, 2, 2), np.float32))
    model = ShapeAppearanceModel(2, n_iter=16, levels=2, residual="inside", random_state=0)
    model.fit(larger)
    assert error(model, larger, residuals=model.residuals_) < error(model, larger)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"residual": "always"}, "residual must be one of .*got .always"),
        ({"residual": "after", "latents": "appearance"}, "nothing is warped"),
        ({"residual": "inside", "n_iter": 5}, "n_iter must be above 10"),
    ],
)
def test_what_does_not_go_together_is_refused(images, arguments, told):
    with pytest.raises(ArgumentError, match=told):
        ShapeAppearanceModel(2, **arguments).fit(images)


def test_models_without_them_say_so(images):
    plain = ShapeAppearanceModel(2, n_iter=1, random_state=0).fit(images)
    with pytest.raises(ValueError, match="fit it with residual='after' or 'inside'"):
        plain.encode(images, residual=True)
    with pytest.raises(ValueError, match="without residual warps"):
        plain.jacobians(plain.latents_, residuals=np.zeros((10, 2, *SPACE)))


def test_velocities_of_another_shape_are_refused(images, inside):
    with pytest.raises(ValueError, match="residuals must have shape"):
        inside.displacement(inside.latents_, residuals=np.zeros((10, 2, 3, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["after", "inside"])
def test_points_that_correspond_come_closer(when):
    """Residual warps from the first iteration on took landmarks to .6 of before, by shading."""
    drawings, marks = drawn(24, seed=1)
    model = ShapeAppearanceModel(4, n_iter=14, residual=when, random_state=0).fit(drawings)
    found = spreads(model, drawings, marks)
    assert (found["modes"] < [0.6, 0.95]).all()
    assert (found["modes and residual"] < found["modes"]).all()


@pytest.mark.parametrize("when", ["after", "inside"])
def test_voxels_at_their_word_bend_more(when):
    """Taken at their word, voxels took landmarks of faces from .84 to .95."""
    drawings, _ = drawn(12, seed=1)
    careful, credulous = (
        ShapeAppearanceModel(6, n_iter=12, residual=when, random_state=0, **more).fit(drawings)
        for more in ({}, {"decimation": 1.0})
    )
    assert careful.settings_.independent_share < 1
    tau, _ = careful.generator_.parameters.residual
    assert tau > 2 * credulous.generator_.parameters.residual[0]
    assert (careful.residuals_**2).sum() < (credulous.residuals_**2).sum()


@pytest.mark.parametrize("intensity", ["per image", "smooth"])
@pytest.mark.parametrize("when", ["after", "inside"])
def test_gains_do_not_run_away(images, when, intensity):
    """Noise that was made larger than it is let gains grow, and noise with them, every round."""
    gains = np.linspace(0.7, 1.4, len(images), dtype=np.float32).reshape(-1, 1, 1)
    arguments = {"n_iter": 12, "random_state": 0, "intensity": intensity, "residual": when}
    model = ShapeAppearanceModel(2, **arguments).fit(gains * images)
    plain = ShapeAppearanceModel(2, **arguments | {"residual": "none"}).fit(gains * images)
    _, noise = model.generator_.parameters.residual
    assert noise > 0.5 / plain.noise_variance_[0]
    encoded = model.encode(gains * images, residual=True)
    modes, bent = (
        model.to_template(images, encoded.latents, residuals=r).var(axis=0).mean()
        for r in (None, encoded.residuals)
    )
    assert bent < modes


def test_the_precision_settles(monkeypatch):
    """With the whole ratio of noises as weight of voxels, it grew with every round."""
    drawings, _ = drawn(40, seed=2)
    found = []
    for n_rounds in (5, 10):
        monkeypatch.setattr(em, "_RESIDUAL_ROUNDS", n_rounds)
        model = ShapeAppearanceModel(12, n_iter=8, residual="after", random_state=0)
        found.append(model.fit(drawings).generator_.parameters.residual[0])
    assert found[1] == pytest.approx(found[0], rel=0.3)


def test_folds_of_residual_warps_are_told(images, inside):
    far = np.zeros((len(images), 2, *SPACE), np.float32)
    far[:, 0, ::2] = 30.0
    folds = find_folds(inside.predictor_, inside.latents_, far)
    assert folds.n_cured + folds.n_images == len(images)
    assert find_folds(inside.predictor_, inside.latents_, inside.residuals_).n_cured == 0
