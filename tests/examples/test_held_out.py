"""Held-out voxels: the small version compares what `compare_layouts` compares, and resumes."""

import json

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.compare.layouts import compare_layouts
from examples.paper import held_out
from examples.paper.experiment import Experiment

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out")
    held_out.main(["--small", "--threads", "1", "--work", str(folder)])
    return folder


def results(folder):
    return json.loads((folder / "results" / "results.json").read_text())


def test_every_case_has_numbers_and_a_picture(folder):
    assert set(results(folder)) == set(held_out.CASES)
    for name in (*held_out.CASES, "slices-by-number"):
        assert (folder / "results" / f"{name}.png").exists()
    numbers = [results(folder)[f"slices-4mm-{n}"]["n_images"] for n in held_out.N_SLICES]
    assert numbers == [4, 8, 16]


def test_scores_are_those_of_compare_layouts(folder, tmp_path):
    experiment = Experiment("trial", tmp_path, tmp_path, is_small=True, n_threads=1)
    case = held_out.coarse_faces(experiment)
    comparison = compare_layouts(case.images, case.n_components, **case.arguments)
    found = results(folder)["faces"]
    for layout, values in comparison.log_likelihood.items():
        numbers = found["log_likelihood"][layout]
        assert numbers["mean"] == pytest.approx(values.mean(), rel=1e-4)
        differences = values - comparison.log_likelihood["joint"]
        assert numbers["less_joint"] == pytest.approx(differences.mean(), rel=1e-3, abs=1e-2)
    errors = {name: score["mean"] for name, score in found["squared_error"].items()}
    assert errors == pytest.approx(
        {name: values.mean() for name, values in comparison.squared_error.items()}, rel=1e-4
    )
    assert np.all(comparison.n_hidden == found["n_hidden_per_image"])


def test_a_second_run_fits_nothing(folder, monkeypatch):
    monkeypatch.setattr(ShapeAppearanceModel, "fit", lambda *_, **__: pytest.fail("fitted again"))
    before = results(folder)
    held_out.main(["--small", "--threads", "1", "--work", str(folder), "--only", "faces"])
    assert results(folder) == before
