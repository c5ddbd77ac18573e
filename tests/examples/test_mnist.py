"""MNIST by evidence, in small: it runs, goes on where it stopped, and says what it found."""

import numpy as np
import pytest

from anamorph import EvidenceClassifier, ShapeAppearanceModel
from anamorph.datasets import MNIST
from anamorph.model.presets import preset
from examples.paper import mnist
from examples.paper.experiment import DATA_VARIABLE, Experiment
from examples.paper.mnist import main, measures


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    main(["--small", "--work", str(folder), "--threads", "1"])
    return folder


@pytest.fixture
def published(folder):
    return Experiment("mnist", folder / "results", folder).published


def test_small_version_finds_most_digits(published):
    assert list(published) == ["60", "100"]
    for entry in published.values():
        assert entry["n_test"] == 10
        assert entry["error_percent"] == 10 * entry["n_errors"] <= 30
        assert len(entry["mistakes"]) == entry["n_errors"]
        assert entry["shootings_max"] <= 60
        assert entry["shootings_mean"] <= 30
        assert entry["calibrated"]["n_errors"] <= 3
        assert entry["calibrated"]["temperature"] > 1
        assert entry["seconds_fit"] > 0
        assert entry["made"]["seconds"] >= entry["seconds_fit"]


def test_it_is_the_evidence_classifier(folder):
    experiment = Experiment("mnist", folder / "results", folder, is_small=True, n_threads=1)
    data = mnist.load_digits(experiment, 10)
    evidence, _ = mnist.classify(
        experiment, None, data.test_images, "n60/test"
    )  # what was remembered
    settings = preset("digits") | {"n_components": 3, "n_iter": 2, "n_threads": 1}
    classifier = EvidenceClassifier(ShapeAppearanceModel(**settings), calibration=2)
    classifier.fit(data.train_images[:60], data.train_labels[:60])
    expected = classifier.joint_log_evidence(data.test_images) - classifier.class_log_prior_
    assert np.allclose(evidence, expected, rtol=1e-4)
    remembered = experiment.published["60"]["calibrated"]
    assert remembered["temperature"] == pytest.approx(classifier.calibration_.temperature, rel=0.01)
    assert np.allclose(remembered["offsets"], classifier.calibration_.offsets, atol=0.01)


def test_it_goes_on_where_it_stopped(folder, monkeypatch, capsys):
    monkeypatch.setattr(ShapeAppearanceModel, "fit", lambda *_, **__: pytest.fail("fitted again"))
    (folder / "n60" / "test-00000-00010.json").unlink()
    main(["--small", "--work", str(folder), "--threads", "1", "--n", "60"])
    printed = capsys.readouterr().out
    assert "n60/test-00000-00010 took" in printed
    assert "model" not in printed


def test_fewer_test_digits_do_not_replace_more(folder, capsys, published):
    main(["--small", "--work", str(folder), "--threads", "1", "--n", "60", "--test", "3"])
    assert "the result on 10 test digits is kept" in capsys.readouterr().out
    assert Experiment("mnist", folder / "results", folder).published == published


def test_figures_are_drawn(folder, published):
    assert (folder / "results" / "errors.png").stat().st_size > 10000
    for n, entry in published.items():
        drawn = folder / "results" / f"mistakes-{n}.png"
        assert drawn.exists() == (entry["n_errors"] > 0)


def test_mistakes_are_counted():
    labels, predicted = np.array([1, 2, 3, 4]), np.array([1, 2, 8, 4])
    found = measures(labels, predicted, np.array([[10, 20], [30, 40]]))
    assert found["n_errors"] == found["n_errors_first_500"] == 1
    assert found["error_percent"] == 25
    assert found["error_percent_95"][0] < 25 < found["error_percent_95"][1]
    assert found["mistakes"] == {"2": "3→8"}
    assert (found["shootings_mean"], found["shootings_max"]) == (25, 40)


def test_data_come_from_a_folder_or_are_fetched(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = {name: np.arange(5) + 10 * n for n, name in enumerate(names)}
    np.savez(tmp_path / "mnist.npz", **arrays)
    monkeypatch.setattr(mnist, "mnist", lambda: MNIST(*arrays.values()))
    for data in (tmp_path, None):
        experiment = Experiment("mnist", tmp_path, tmp_path, data=data)
        found = mnist.load_digits(experiment, 2)
        assert found.train_labels.tolist() == [10, 11, 12, 13, 14]
        assert found.test_images.tolist() == [20, 21]
        assert found.test_labels.tolist() == [30, 31]


def test_more_digits_than_there_are(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--small", "--work", str(tmp_path), "--n", "101"])
    assert "--n must be from 1 to 100, got 101" in capsys.readouterr().err
