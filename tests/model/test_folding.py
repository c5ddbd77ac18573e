"""Warps that fold are cured by more steps, or counted and told, by fits and when encoding."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry import jacobian_determinant
from anamorph.geometry.shooting import count_folds
from anamorph.images.arrays import ArrayImages
from anamorph.model import folding
from anamorph.model.encoding import Encoded
from anamorph.model.folding import Folds, encode_unfolded, find_folds
from anamorph.model.generator import Generator
from tests.cli.conftest import blobs


@pytest.fixture(scope="module")
def model():
    return ShapeAppearanceModel(3, n_iter=3, n_threads=1).fit(blobs(10, (16, 14)))


def amplified(model, factor, **changes):
    """Return the predictor of a model with larger velocities."""
    settings = replace(model.settings_, **changes)
    parameters = model.generator_.parameters
    larger = replace(parameters, shape_basis=parameters.shape_basis * np.float32(factor))
    return replace(model.predictor_, generator=Generator(settings, larger))


def folded_in(generator, latents):
    """Return which warps fold in the steps of a generator, (N,)."""
    return count_folds(generator.displacement(latents))[0] > 0


@pytest.fixture(scope="module")
def curable(model):
    """Return a predictor of few steps, in which some warps fold that do not fold in more."""
    for factor in np.geomspace(2, 30, 30):
        predictor = amplified(model, factor, n_steps=1)
        folds = find_folds(predictor, model.latents_)
        if folds.n_cured:
            return predictor
    raise AssertionError("there is no such model")


def test_usual_warps_do_not_fold(model):
    assert find_folds(model.predictor_, model.latents_) == Folds(n_checked=10)


def test_folds_are_counted(model):
    predictor = next(
        predictor
        for factor in np.geomspace(30, 200, 12)
        if count_folds((predictor := amplified(model, factor)).displacement(model.latents_))[
            0
        ].any()
    )
    folds = find_folds(predictor, model.latents_)
    plain = folded_in(predictor.generator, model.latents_)
    drawn = predictor.displacement(model.latents_)
    counts, smallest = count_folds(drawn, between_voxels=True)
    assert folds.n_voxels == counts.sum() >= (jacobian_determinant(drawn) <= 0).sum() > 0
    assert folds.n_images == (counts > 0).sum()
    assert folds.smallest == pytest.approx(smallest.min())
    # What more steps do not cure is drawn in the steps that were asked for.
    is_left = count_folds(drawn)[0] > 0
    assert plain[is_left].all()
    as_asked = predictor.generator.displacement(model.latents_)
    np.testing.assert_array_equal(drawn[is_left], as_asked[is_left])


def test_warps_beyond_all_numbers_count_as_folded():
    displacement = np.zeros((2, 2, 4, 4), np.float32)
    displacement[1, :, 1, 2] = 1e30
    counts, _ = count_folds(displacement)
    assert counts[0] == 0
    assert counts[1] > 0


def test_cells_that_turn_over_between_voxels_are_counted():
    """Central differences saw nothing of them: determinants at corners were down to -1."""
    displacement = np.zeros((1, 2, 8, 8), np.float32)
    displacement[0, 0, 4:] = [[-1.1]] * 4  # rows 3 and 4 change places, and rows 2 and 5 do not
    assert jacobian_determinant(displacement).min() > 0
    assert count_folds(displacement)[0] == [0]
    counts, smallest = count_folds(displacement, between_voxels=True)
    assert counts[0] > 0
    assert smallest[0] < 0


def test_jacobians_that_are_not_positive_are_told(caplog):
    """Images are no trouble, and nobody has looked at their warps: latents come from a table."""
    rough = ShapeAppearanceModel(2, latents="shape", shape_penalty=(1e-7,) * 5, n_iter=3, n_steps=1)
    rough.fit(blobs(12, (16, 14)))
    latents = 8 * rough.latents_
    caplog.clear()
    changes = rough.jacobians(latents)
    is_folded = ~(changes > 0)
    assert is_folded.any()
    told = f"of {is_folded.any(axis=(1, 2)).sum()} of 12 images are not positive"
    assert f"{told}, at {is_folded.sum()} voxels: warps fold" in caplog.text
    caplog.clear()
    assert np.isnan(rough.jacobians(latents, log=True)).sum() == is_folded.sum()
    assert f"{told}, at {is_folded.sum()} voxels (NaN)" in caplog.text


def test_warps_are_drawn_in_as_many_steps_as_they_need(curable, model):
    plain = curable.generator.displacement(model.latents_)
    folded = folded_in(curable.generator, model.latents_)
    assert 0 < folded.sum() < len(folded)
    drawn = curable.displacement(model.latents_)
    assert (jacobian_determinant(drawn) > 0).all()
    np.testing.assert_array_equal(drawn[~folded], plain[~folded])  # others are left alone
    images = curable.expected_images(model.latents_)
    generator = curable.generator
    expected = generator.warp(generator.appearance(model.latents_), plain)
    np.testing.assert_array_equal(images[~folded], expected[~folded])
    assert all((images[n] != expected[n]).any() for n in np.flatnonzero(folded))


def test_images_whose_warps_fold_are_encoded_again_in_more_steps(curable, model, monkeypatch):
    images = ArrayImages(curable.expected_images(model.latents_)[:, 0], "gaussian")
    latents = model.latents_
    encoded = Encoded(latents, np.full(10, -1e6), np.ones(10, int))
    again, folds = encode_unfolded(curable, images, encoded)
    folded = folded_in(curable.generator, latents)
    assert (folds.n_cured, folds.n_images, folds.n_checked) == (folded.sum(), 0, 10)
    np.testing.assert_array_equal(again.latents[~folded], latents[~folded])
    assert (again.n_shootings[folded] > 1).all()
    assert (again.n_shootings[~folded] == 1).all()
    assert (again.log_evidence[folded] > -1e6).all()
    assert (jacobian_determinant(curable.displacement(again.latents)) > 0).all()


def test_of_many_images_those_with_the_largest_warps_are_looked_at(model, monkeypatch):
    monkeypatch.setattr(folding, "_MOST_CHECKED", 2)
    latents = np.concatenate([np.zeros((5, 3)), 60 * model.latents_[:1], np.zeros((5, 3))])
    folds = find_folds(model.predictor_, latents)
    assert folds.n_checked == 2
    assert folds.n_images + folds.n_cured == 1


def test_a_model_without_shape_does_not_fold():
    model = ShapeAppearanceModel(2, latents="appearance", n_iter=1).fit(blobs(6, (8, 8)))
    assert find_folds(model.predictor_, model.latents_) == Folds()
    assert len(model.transform(blobs(3, (8, 8)))) == 3


@pytest.mark.parametrize("align", ["none", "translation"])
def test_a_fit_and_an_encoding_say_that_warps_fold(caplog, align):
    """By the numbers of what still folds when it is drawn; of what is cured they do not warn."""
    options = {"n_iter": 4, "n_steps": 1, "n_threads": 1, "align": align}
    rough = ShapeAppearanceModel(4, latents="shape", shape_penalty=(1e-7,) * 5, **options)
    images = blobs(12, (16, 14))
    for use in (rough.fit, rough.transform):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            result = use(images)
        latents = rough.latents_ if result is rough else result
        counts, _ = count_folds(rough.displacement(latents), between_voxels=True)
        n_images = (counts > 0).sum()
        told = f"The warps of {n_images} of 12 images fold, at {counts.sum()} voxels"
        warned = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        assert [text.startswith(told) for text in warned if "fold" in text] == [True] * bool(
            n_images
        )
    assert any("fold" in text for text in caplog.messages)


def test_a_fit_whose_residual_warps_fold_says_where_others_are(caplog):
    options = {"n_iter": 2, "n_threads": 1, "decimation": 1.0, "shape_penalty": (1e-5,) * 5}
    model = ShapeAppearanceModel(2, residual="after", **options).fit(blobs(12, (16, 14)))
    counts, _ = count_folds(
        model.displacement(model.latents_, residuals=model.residuals_), between_voxels=True
    )
    assert counts.any()
    assert f"fold, at {counts.sum()} voxels" in caplog.text
    assert "residual warps that encode finds are smoothed where they fold" in caplog.text


def test_images_whose_warps_fold_are_posed_again_with_more_steps():
    """Their poses go with latents of as many steps; those of the others stay."""
    images = np.stack([np.roll(image, n % 3, axis=0) for n, image in enumerate(blobs(8, (16, 14)))])
    model = ShapeAppearanceModel(2, align="translation", n_iter=2, n_threads=1).fit(images)
    latents, poses = model.latents_, model.poses_
    predictor = next(
        predictor
        for factor in np.geomspace(2, 60, 40)
        if find_folds(predictor := amplified(model, factor, n_steps=1), latents).n_cured
    )
    folded = folded_in(predictor.generator, latents)
    drawn = ArrayImages(predictor.expected_images(latents, poses=poses)[:, 0], "gaussian")
    near = poses + 0.3
    encoded = Encoded(latents, np.full(8, -1e6), np.ones(8, int), poses=near)
    again, folds = encode_unfolded(predictor, drawn, encoded)
    assert folds.n_cured == folded.sum() < 8
    np.testing.assert_array_equal(again.poses[~folded], near[~folded])
    np.testing.assert_allclose(again.poses[folded], poses[folded], atol=0.2)
    assert (encoded.poses == near).all()  # what was given is left alone
