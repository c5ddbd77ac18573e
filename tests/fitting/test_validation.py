"""Held-out images: their evidence after each iteration is that of a model fitted so far."""

import math

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel, plots
from anamorph.fitting.validation import best_iteration
from tests.cli.conftest import blobs

SETTINGS = {
    "n_components": 2,
    "n_iter": 3,
    "decimation": 1.0,
    "shape_penalty": (0.01, 0.1, 1, 1, 1),
}


@pytest.fixture(scope="module")
def images():
    return np.float32(blobs(14, (12, 10)))


@pytest.fixture(scope="module")
def watched(images):
    return ShapeAppearanceModel(**SETTINGS).fit(images[:10], validation=images[10:])


def test_evidence_after_an_iteration_is_that_of_a_fit_that_ends_there(images, watched):
    assert len(watched.validation_) == 3
    for n_iter in (1, 3):
        model = ShapeAppearanceModel(**SETTINGS | {"n_iter": n_iter}).fit(images[:10])
        assert watched.validation_[n_iter - 1] == pytest.approx(model.score(images[10:]), rel=1e-6)
    assert model.objective_ == watched.objective_  # nobody learns from held-out images
    assert model.validation_ == []
    assert model.best_iteration_ is None


def test_evidence_is_that_of_noise_in_images_that_the_fit_does_not_know(images):
    """Noise of the fit's own images is too small: evidence fell with every iteration and latent."""
    for n_components in (2, 8):
        learnt, new = images[:10], images[10:]
        model = ShapeAppearanceModel(n_components, n_iter=4).fit(learnt, validation=new)
        assert model.settings_.estimates_weight
        assert model.validation_[-1] > model.score(new) - 1  # by noise that comes from the fit


def test_the_evidence_is_kept_with_the_model_and_drawn(watched, tmp_path):
    watched.save(tmp_path / "model")
    again = ShapeAppearanceModel.load(tmp_path / "model")
    assert again.validation_ == watched.validation_
    assert again.best_iteration_ == 1 + int(np.argmax(watched.validation_))
    drawn = plots.plot_objective(again).figure.axes[1]
    assert f"iteration {again.best_iteration_}" in drawn.get_legend().get_texts()[0].get_text()
    assert list(drawn.lines[0].get_ydata()) == watched.validation_


def test_a_resumed_fit_does_not_know_what_was_before(images, watched, tmp_path):
    held = {"validation": images[10:], "checkpoint": tmp_path / "checkpoint"}
    ShapeAppearanceModel(**SETTINGS | {"n_iter": 2}).fit(images[:10], **held)
    model = ShapeAppearanceModel(**SETTINGS).fit(images[:10], **held)
    assert math.isnan(model.validation_[0])
    assert model.validation_[1:] == pytest.approx(watched.validation_[1:], rel=1e-6)
    model.save(tmp_path / "model")
    assert math.isnan(ShapeAppearanceModel.load(tmp_path / "model").validation_[0])


def test_held_out_images_must_be_like_the_others(images):
    with pytest.raises(ValueError, match="12"):
        ShapeAppearanceModel(**SETTINGS).fit(images[:10], validation=images[10:, :8])


def test_the_best_iteration_counts_from_one():
    assert best_iteration([-5.0, -3.0, -4.0]) == 2
    assert best_iteration([math.nan, -4.0]) == 2
    assert best_iteration([]) is None
    assert best_iteration([math.nan]) is None
