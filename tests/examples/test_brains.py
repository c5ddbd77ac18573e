"""Brains: hidden voxels choose the number of latents, people's slices are not published."""

import json

import pytest

from examples.paper import brains

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brains")
    brains.main(["--small", "--threads", "1", "--work", str(folder)])
    return folder


def results(folder):
    return json.loads((folder / "results" / "results.json").read_text())


def test_the_number_of_latents_predicts_best(folder):
    found = results(folder)["number-of-latents"]
    best = max(found["log_likelihood"], key=found["log_likelihood"].get)
    assert found["chosen"] == int(best)
    assert results(folder)[f"slices-{best}"]["n_components"] == found["chosen"]


@pytest.mark.parametrize("name", ["volumes", "slices-6"])
def test_shape_and_appearance_together_fit_best(folder, name):
    numbers = results(folder)[name]
    together = numbers["both"]["log_likelihood_per_image"]
    for part in ("shape", "appearance"):
        assert together > numbers[part]["log_likelihood_per_image"]
        assert 0 < numbers[part]["share_of_brain_in_its_class"] <= 1


def test_slices_of_people_are_not_published(folder):
    published = {path.name for path in (folder / "results").glob("*.png")}
    private = {path.name for path in (folder / "pictures").glob("*.png")}
    assert "volumes-fits.png" in published
    assert "slices-6-modes.png" in published
    assert private == {name.replace("modes", "fits") for name in published if "slices" in name} - {
        name for name in published if "samples" in name
    }
