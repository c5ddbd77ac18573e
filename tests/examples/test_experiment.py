"""Experiments: steps are done once, results say where they come from, small versions stay small."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from anamorph import ShapeAppearanceModel
from examples.paper import provenance
from examples.paper.experiment import DATA_VARIABLE, Experiment, parser
from examples.paper.provenance import ROOT, joined


@pytest.fixture
def experiment(tmp_path):
    return Experiment("trial", results=tmp_path / "results", work=tmp_path / "work")


def options(*arguments):
    return Experiment.from_options("mnist", parser("mnist", None).parse_args(arguments))


def test_a_step_is_done_once(experiment):
    first = experiment.arrays("a/b", lambda: {"values": [1, 2], "word": "x"})
    again = experiment.arrays("a/b", lambda: pytest.fail("computed twice"))
    assert again["values"].tolist() == first["values"].tolist() == [1, 2]
    assert str(again["word"]) == "x"


def test_a_step_that_fails_is_done_again(experiment):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.arrays("step", fail)
    assert experiment.arrays("step", lambda: {"value": 3})["value"] == 3


def test_a_step_without_its_note_is_not_done(experiment):
    experiment.arrays("step", lambda: {"value": 3})
    (experiment.work / "step.json").unlink()
    assert experiment.arrays("step", lambda: {"value": 4})["value"] == 4


def test_objects_are_not_remembered(experiment):
    with pytest.raises(TypeError, match="value must be numbers or strings, got objects"):
        experiment.arrays("step", lambda: {"value": object()})


def test_a_model_is_fitted_once_and_goes_on_from_its_checkpoint(experiment):
    images = np.random.default_rng(0).random((6, 8, 8))
    seen = []

    def fit(checkpoint):
        seen.append(checkpoint.exists())
        model = ShapeAppearanceModel(2, n_iter=1, **experiment.computing)
        model.fit(images, checkpoint=checkpoint)
        if len(seen) == 1:
            raise KeyboardInterrupt
        return model

    with pytest.raises(KeyboardInterrupt):
        experiment.model("model", fit)
    model = experiment.model("model", fit)
    again = experiment.model("model", fit)
    assert seen == [False, True]
    assert np.array_equal(again.mean_, model.mean_)
    assert not (experiment.work / "model.checkpoint").exists()


def test_results_say_where_they_come_from(experiment):
    experiment.arrays("one/a", lambda: {"value": 1})
    experiment.arrays("one/b", lambda: {"value": 2})
    experiment.arrays("two/a", lambda: {"value": 3})
    experiment.publish("one", {"error": np.float32(0.5), "list": np.arange(2)}, "one/")
    experiment.publish("two", {"error": 1}, "two/")
    written = json.loads((experiment.results / "results.json").read_text())
    assert written == experiment.published
    assert written["one"]["error"] == 0.5
    assert written["one"]["list"] == [0, 1]
    made = written["one"]["made"]
    assert set(made) == {"commits", "machines", "seed", "seconds"}
    assert len(made["commits"]) == len(made["machines"]) == 1
    assert "cores" in made["machines"][0]
    assert made["seed"] == 0


def test_steps_of_two_seeds_make_no_result():
    parts = [{"commits": ["a"], "machines": ["m"], "seed": seed, "seconds": 1.0} for seed in (0, 1)]
    assert joined([parts[0], parts[0]])["seconds"] == 2
    with pytest.raises(ValueError, match=r"one seed, got \[0, 1\]"):
        joined(parts)


def test_a_copy_without_history_is_told_its_commit(monkeypatch, tmp_path):
    monkeypatch.delenv(provenance.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.present_commit() == "unknown"
    monkeypatch.setenv(provenance.COMMIT_VARIABLE, "abc")
    assert provenance.present_commit() == "abc"


def test_the_machine_names_its_threads_and_its_device():
    assert provenance.present_machine("cpu", 1).endswith("cores, 1 threads")
    assert len(provenance.present_machine("cuda", 1)) > len(provenance.present_machine("cpu", 1))


def test_pictures_must_be_small(experiment):
    figure = Figure((1, 1))
    assert experiment.draw("empty", figure).read_bytes()[:4] == b"\x89PNG"
    noise = Figure((8, 8))
    noise.subplots().imshow(np.random.default_rng(0).random((900, 900)))
    with pytest.raises(ValueError, match=r"noise.png has \d+ bytes"):
        experiment.draw("noise", noise, dpi=200)


def test_options_say_where_things_are(monkeypatch, tmp_path):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert options().results == ROOT / "docs" / "results" / "mnist"
    assert options().data is None
    small = options("--small")
    assert small.results.is_relative_to(small.work)
    assert small.work != options().work
    given = options("--out", str(tmp_path), "--device", "cuda", "--threads", "1", "--seed", "3")
    assert given.results == tmp_path
    assert given.computing == {"device": "cuda", "n_threads": 1, "random_state": 3}
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert options().data == tmp_path


def test_data_that_are_not_there(experiment, tmp_path):
    with pytest.raises(SystemExit, match=r"faces\.npz is needed: give its folder with --data"):
        experiment.load("faces.npz")
    with pytest.raises(SystemExit, match=r"does not exist: give the folder of faces\.npz"):
        options("--data", str(tmp_path)).load("faces.npz")
    np.savez(tmp_path / "faces.npz", x=np.arange(3))
    assert options("--data", str(tmp_path)).load("faces.npz")["x"].tolist() == [0, 1, 2]
