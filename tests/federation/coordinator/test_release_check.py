"""The release check: it finds membership where a model tells it, and not where none can."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.federation import release_check
from anamorph.federation.coordinator.release_check import _auc, _found_at


@pytest.fixture(scope="module")
def images():
    return digits()[0][:, ::2, ::2].astype(np.float32) / 255


@pytest.fixture(scope="module")
def model(images):
    """A model with nearly as many components as images."""
    return ShapeAppearanceModel(
        10, latents="appearance", n_iter=4, appearance_penalty=(0.01, 1.0, 1.0)
    ).fit(images[:12])


def test_a_model_of_few_images_tells_who_was_in_the_fit(model, images):
    result = release_check(model, images[:12], images[100:140])
    assert result.best.auc > 0.95
    assert result.grade == "plain"
    assert result.best.low <= result.best.auc <= result.best.high
    assert "tells plainly who was in the fit: AUC" in result.verdict
    assert "1.2 images per component" in result.verdict
    assert "With 40 others, 1 % means none of them." in result.verdict
    assert (result.n_members, result.n_others, result.n_fitted) == (12, 40, 12)


def test_images_that_were_not_in_the_fit_look_alike(model, images):
    result = release_check(model, images[200:260], images[260:320])
    assert result.best.low < 0.6
    assert result.grade in ("chance", "weak")


def test_it_needs_some_images(model, images):
    with pytest.raises(
        ValueError, match="at least 10 members and 10 others are needed, got 12 and"
    ):
        release_check(model, images[:12], images[100:103])


def test_auc_counts_pairs_and_ties():
    assert _auc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
    assert _auc(np.array([1.0]), np.array([1.0])) == 0.5
    assert _auc(np.array([0.0, 2.0]), np.array([1.0])) == 0.5


def test_members_found_are_above_all_others_but_one_percent():
    others = np.arange(200.0)
    assert _found_at(np.array([197.5, 196.5, 250.0]), others, 0.01) == pytest.approx(2 / 3)
    assert _found_at(np.array([5.0]), np.arange(10.0), 0.01) == 0
