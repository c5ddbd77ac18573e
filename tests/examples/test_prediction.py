"""The comparison with baselines: each predicts what it should where the answer is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from examples.prediction import baselines, hidden
from examples.prediction.datasets import drawn


@pytest.fixture(scope="module")
def split():
    return drawn().split(0)


def test_nobody_is_both_learnt_from_and_predicted():
    dataset = drawn()
    split = dataset.split(3)
    assert len(split.training) == dataset.n_training
    rows = {image.tobytes() for image in split.training}
    assert not any(image.tobytes() in rows for image in split.test)
    assert 0.2 < split.is_hidden.mean() < 0.35


def test_the_mean_has_a_relative_error_of_one(split):
    mean = np.broadcast_to(split.training.mean(axis=0), split.test.shape)
    assert split.relative_error(mean) == pytest.approx(1)
    assert split.relative_error(split.test) == 0


def test_ridge_regression_is_that_of_scikit_learn():
    draws = np.random.default_rng(0)
    rows, row = draws.standard_normal((12, 7)), draws.standard_normal(7)
    row[5:] = np.nan
    found = baselines.ridge_regression(rows, row, [0.3])[0]
    centred = rows - rows.mean(axis=0)
    unit = np.square(centred[:, :5]).sum() / 12
    expected = Ridge(alpha=0.3 * unit).fit(rows[:, :5], rows[:, 5:]).predict(row[None, :5])[0]
    assert found[5:] == pytest.approx(expected)


def test_ppca_has_the_likelihood_of_scikit_learn():
    rows = np.random.default_rng(1).standard_normal((30, 6)) @ np.diag([4, 3, 1, 1, 1, 1.0])
    ours = baselines.probabilistic_pca(rows, 2).log_density(rows)
    theirs = PCA(2).fit(rows * (29 / 30) ** 0.5).score_samples(rows * 1.0)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999


def test_a_linear_model_predicts_by_conditioning_a_gaussian():
    draws = np.random.default_rng(2)
    weights, noise, mean = draws.standard_normal((5, 2)), draws.random(5) + 0.1, draws.random(5)
    row = np.array([0.3, -1.0, 0.5, np.nan, np.nan])
    covariance = weights @ weights.T + np.diag(noise)
    expected = mean[3:] + covariance[3:, :3] @ np.linalg.solve(
        covariance[:3, :3], row[:3] - mean[:3]
    )
    found = baselines.LinearModel(mean, weights, noise).predict(row)
    assert found[3:] == pytest.approx(expected)


def test_a_run_keeps_what_is_done_and_shows_mean_and_standard_error(tmp_path):
    tasks = [hidden.Task("drawn faces", "KNN", 0, n) for n in range(2)]
    results = {task: hidden.kept(task, None, tmp_path) for task in tasks}
    first = tmp_path / tasks[0].file
    first.write_text(json.dumps(results[tasks[0]] | {"error": 0.5}))
    results[tasks[0]] = hidden.kept(tasks[0], None, tmp_path)
    assert hidden.kept(hidden.Task("drawn faces", "KNN", 0, 2), None, tmp_path, deadline=0) is None
    found = hidden.summary(results)
    assert found["drawn faces"]["KNN"]["error"]["n_splits"] == 2
    assert found["drawn faces"]["made"]["seed"] == 0
    assert found["drawn faces"]["made"]["splits"] == [0, 1]
    assert "KNN" in hidden.table(found, "error")


@pytest.mark.slow
def test_the_model_predicts_drawn_faces():
    result = hidden.result_of(hidden.Task("drawn faces", "anamorph", 8, 0), None)
    assert result["error"] < 0.7
    assert 0 < result["weight"] <= 1


def test_splits_follow_the_seed():
    tasks = hidden.tasks_of(["digits", "hippocampi"], range(7, 9), [4, 8])
    assert {task.split for task in tasks} == {7, 8}
    assert tasks[0] == hidden.Task("hippocampi", "anamorph", 8, 7)
