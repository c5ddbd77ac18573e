"""Faces: people are split, errors are ordered as they must be, smiles are found in pairs."""

import json

import numpy as np
import pytest

from examples.paper import faces
from examples.paper.experiment import Experiment
from examples.paper.images import drawn_faces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces")
    faces.main(["--small", "--threads", "1", "--work", str(folder)])
    return folder


@pytest.fixture
def study(folder):
    experiment = Experiment("faces", folder / "results", folder, is_small=True, n_threads=1)
    return faces.Study.make(experiment)


def test_pictures_are_drawn(folder):
    names = {path.stem for path in (folder / "results").glob("*.png")}
    assert names == {"fits", "fits-held-out", "modes", "samples", "arithmetic"}


def test_nobody_is_on_both_sides(study):
    assert not set(study.training.person) & set(study.held_out.person)
    assert set(study.fitted.person) < set(study.training.person)
    assert len(study.training.images) + len(study.held_out.images) == 24


def test_errors_are_those_of_the_images(folder, study):
    written = json.loads((folder / "results" / "results.json").read_text())["fits"]
    errors = written["root_mean_squared_error"]["fitted"]
    assert errors["principal components"] < errors["mean face"]
    assert errors["both"] < errors["mean face"]
    latents = study.model.transform(study.fitted.images)
    expected = study.model.inverse_transform(latents)
    found = np.sqrt(np.mean((expected - study.fitted.images) ** 2))
    assert errors["both"] == pytest.approx(found, rel=1e-4)


def test_all_components_leave_no_error():
    images = drawn_faces(4, 0).images
    components = faces.Components.of(images, 7)
    latents = components.transform(images)
    assert np.allclose(latents.std(axis=0, ddof=1), 1, atol=1e-3)
    assert np.allclose(components.inverse_transform(latents), images, atol=1e-4)


def test_pairs_are_of_one_person():
    photographs = drawn_faces(5, 0)
    mixed = photographs.take(np.ones(10, bool))
    order = np.random.default_rng(1).permutation(10)
    mixed = faces.Faces(mixed.images[order], mixed.person[order], mixed.is_smiling[order])
    neutral, smiling = faces.pairs(mixed)
    assert np.array_equal(mixed.person[neutral], mixed.person[smiling])
    assert not mixed.is_smiling[neutral].any()
    assert mixed.is_smiling[smiling].all()
