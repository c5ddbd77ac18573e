"""NaN and infinity stop a fit, which says what is suspected; nothing is written over."""

import logging
import warnings

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.fitting import guard
from anamorph.fitting.errors import FitError
from tests.cli.conftest import blobs
from tests.conftest import one_line


def model(**changes):
    return ShapeAppearanceModel(2, **{"n_iter": 3, "n_threads": 1} | changes)


@pytest.fixture(autouse=True)
def _no_warnings():
    """The error says it once, where NumPy would warn many times."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_values_too_large_are_one_line_that_names_the_image():
    images = blobs(8, (12, 10)).astype(np.float64)
    images *= 1e20
    with pytest.raises(FitError, match=r"image \d has values up to \d.*e\+20") as e:
        model().fit(images)
    assert "leave it out" in one_line(e)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"balance": (1e-30, 0.0)}, "balance="),
        ({"decimation": 1e30}, "decimation="),
        ({"voxel_size": (1e-10, 1e-10), "likelihood": "bernoulli"}, "voxel_size="),
    ],
)
def test_extreme_settings_are_one_line_that_names_them(options, named):
    with pytest.raises(FitError, match="not finite") as error:
        model(**options).fit(blobs(10, (12, 10)))
    assert f"suspected: {named}" in one_line(error)


def test_the_last_good_checkpoint_is_kept(tmp_path, monkeypatch):
    images, path = blobs(8, (12, 10)), tmp_path / "checkpoint"
    original, contents = guard.next_state, []

    def spoiled(iterations, number):
        state = original(iterations, number)
        if number == 3:
            contents.append(path.read_bytes())
            raise FitError("the objective is nan after iteration 3")
        return state

    monkeypatch.setattr("anamorph.fitting.run.next_state", spoiled)
    with pytest.raises(FitError, match="keeps the last iteration before"):
        model().fit(images, checkpoint=path)
    assert path.read_bytes() == contents[0]
    monkeypatch.undo()
    assert model().fit(images, checkpoint=path).n_iter_ == 3


def test_intensities_that_teach_nothing_are_told(caplog):
    with caplog.at_level(logging.WARNING):
        model().fit(blobs(8, (12, 10)) * np.float64(1e-40))
    assert "nothing was learnt" in caplog.text


def test_a_fit_as_usual_is_not_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        model(n_iter=6).fit(blobs(8, (12, 10)))
    assert "objective" not in caplog.text


@pytest.mark.parametrize(
    ("likelihood", "setting"),
    [
        # The mean is flat, and no warp of it has a derivative: all latents are 0.
        ("poisson", {"mean_penalty": (8e8, 0.0, 1e4)}),
        ("bernoulli", {"voxel_size": (1e-3, 1e-3)}),
        # Latents of 1e-19 differ by rounding.
        ("gaussian", {"shape_penalty": (1e12,) * 5}),
    ],
)
def test_latents_that_are_all_zero_are_told_and_leave_the_mean_image(caplog, likelihood, setting):
    images = np.random.default_rng(0).random((6, 9, 8))
    if likelihood == "poisson":
        images = np.rint(4e7 * images)
    with caplog.at_level(logging.WARNING):
        fitted = model(latents="shape", likelihood=likelihood, **setting).fit(images)
    assert "No latent differs between images: the model is its mean image" in caplog.text
    assert f"nothing else; {next(iter(setting))}=" in caplog.text
    assert 0 < fitted.settings_.prediction_weight <= 1
    found = fitted.inverse_transform(fitted.transform(images))
    assert np.allclose(found, found[0], rtol=1e-3)
    if "mean_penalty" not in setting:
        assert np.allclose(found.mean(), images.mean(), rtol=0.1)


def test_a_coarse_grid_that_learns_nothing_is_not_told(caplog, monkeypatch):
    told = []
    monkeypatch.setattr("anamorph.fitting.run.warn_of_latents", lambda *_: told.append(1))
    model(levels=2, n_iter=4).fit(blobs(8, (24, 20)))
    assert len(told) == 1
