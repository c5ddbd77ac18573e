"""Groups of people, in small: folds that split nobody, features learnt inside them, curves."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from anamorph import ShapeAppearanceModel
from examples.paper import groups
from examples.paper.experiment import Experiment
from examples.paper.groups import folds, main, resampled_areas, simulated_slices


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    main(["--small", "--work", str(folder), "--threads", "1"])
    return folder


def test_small_version_tells_old_from_young(folder):
    published = Experiment("groups", folder / "results", folder).published
    assert list(published) == ["shape and appearance", "principal components", "smoothed voxels"]
    for entry in published.values():
        assert entry["n_images"] == 30
        assert entry["area"] > 0.8
        assert entry["area_95"][0] <= entry["area"] <= entry["area_95"][1]
        assert len(entry["area_of_folds"]) == 5
    variances = np.array(published["shape and appearance"]["variances_of_folds"])
    assert variances.shape == (5, 2)
    assert (variances.max(axis=1) > 0.01).all()  # something decides, by what the bounds allow
    assert (variances.max(axis=1) < 2e6).all()
    assert (folder / "results" / "curves.png").stat().st_size > 10000


def test_it_goes_on_where_it_stopped(folder, monkeypatch):
    monkeypatch.setattr(ShapeAppearanceModel, "fit", lambda *_, **__: pytest.fail("fitted again"))
    main(["--small", "--work", str(folder), "--threads", "1"])


def test_folds_split_nobody_and_test_everybody_once():
    slices = simulated_slices()
    subject = np.arange(len(slices.subject)) // 2
    splits = folds(replace(slices, subject=subject), seed=0)
    assert np.array_equal(np.sum([~train for train in splits], axis=0), np.ones(len(subject)))
    for train in splits:
        assert not set(subject[train]) & set(subject[~train])


@pytest.mark.parametrize("features_of", list(groups.METHODS.values()))
def test_features_know_nothing_of_the_labels_or_of_test_images(features_of, tmp_path):
    """Changing one test image changes its own features, and no others."""
    experiment = Experiment("groups", tmp_path, tmp_path / "a", is_small=True, n_threads=1)
    slices = simulated_slices()
    train = np.arange(30) < 24
    before = features_of(experiment, "step", slices, train).values
    tissues = slices.tissues.copy()
    tissues[29] = tissues[29, ::-1]
    changed = replace(slices, tissues=tissues, is_patient=~slices.is_patient)
    after = features_of(replace(experiment, work=tmp_path / "b"), "step", changed, train).values
    assert np.allclose(after[:29], before[:29], rtol=1e-5, atol=1e-6 * np.abs(before).max())
    assert not np.allclose(after[29], before[29], rtol=1e-3)


def test_areas_of_samples_surround_that_of_all():
    generator = np.random.default_rng(0)
    is_patient = np.arange(200) < 100
    probabilities = generator.random(200) + 0.3 * is_patient
    area = roc_auc_score(is_patient, probabilities)
    low, high = resampled_areas(is_patient, probabilities, 0)
    assert low < area < high
    assert 0.05 < high - low < 0.2  # 4 standard errors of about 0.03
    assert resampled_areas(is_patient, is_patient * 1.0, 0) == [1, 1]
