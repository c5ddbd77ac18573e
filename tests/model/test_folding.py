"""Warps that fold are found, counted and told, after a fit and after encoding."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry import jacobian_determinant
from anamorph.model import folding
from anamorph.model.folding import find_folds
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


def test_usual_warps_do_not_fold(model):
    folds = find_folds(model.predictor_, model.latents_)
    assert (folds.n_images, folds.n_voxels, folds.n_checked) == (0, 0, 10)
    assert folds.smallest > 0


def test_folds_are_counted(model):
    predictor = amplified(model, 40.0)
    determinant = jacobian_determinant(predictor.displacement(model.latents_))
    folds = find_folds(predictor, model.latents_)
    assert folds.n_voxels == (determinant <= 0).sum() > 0
    assert folds.n_images == (determinant <= 0).any(axis=(1, 2)).sum()
    assert folds.smallest == pytest.approx(determinant.min())


def test_steps_that_cure_folds_are_named(model):
    few = next(
        predictor
        for factor in np.geomspace(2, 30, 30)
        if find_folds(predictor := amplified(model, factor, n_steps=1), model.latents_).n_images
    )
    folds = find_folds(few, model.latents_)
    assert folds.cured_by in (2, 4)
    cured = replace(few.generator.settings, n_steps=folds.cured_by)
    finer = replace(few, generator=Generator(cured, few.generator.parameters))
    assert find_folds(finer, model.latents_).n_images == 0


def test_of_many_images_those_with_the_largest_warps_are_looked_at(model, monkeypatch):
    monkeypatch.setattr(folding, "_MOST_CHECKED", 2)
    latents = np.concatenate([np.zeros((5, 3)), 60 * model.latents_[:1], np.zeros((5, 3))])
    folds = find_folds(model.predictor_, latents)
    assert folds.n_checked == 2
    assert folds.n_images == 1


def test_a_model_without_shape_does_not_fold():
    model = ShapeAppearanceModel(2, latents="appearance", n_iter=1).fit(blobs(6, (8, 8)))
    assert find_folds(model.predictor_, model.latents_).n_checked == 0


def test_a_fit_and_an_encoding_say_that_warps_fold(caplog):
    rough = ShapeAppearanceModel(
        4, n_iter=4, n_steps=1, n_threads=1, latents="shape", shape_penalty=(1e-7,) * 5
    )
    images = blobs(12, (16, 14))
    with caplog.at_level(logging.WARNING):
        rough.fit(images)
    (line,) = [text for text in caplog.messages if "fold" in text]
    determinant = jacobian_determinant(rough.displacement(rough.latents_))
    n_images = (determinant <= 0).any(axis=(1, 2)).sum()
    assert line.startswith(
        f"The warps of {n_images} of 12 images fold, at {(determinant <= 0).sum()} voxels"
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        latents = rough.transform(images)
    determinant = jacobian_determinant(rough.displacement(latents))
    is_told = any("images fold" in text for text in caplog.messages)
    assert is_told == bool((determinant <= 0).any())
