"""Commands that hand over to other pieces: comparisons, reports and the demonstration."""

import numpy as np
import pytest

from anamorph import compare, demo
from anamorph.io.participants import read_participants
from tests.cli.conftest import N_IMAGES, SPACE, blobs
from tests.io.filemaking import save_array


def test_compare(anamorph, pictures, tmp_path):
    flags = ("-k", 3, "--layouts", "joint,shape", "--fraction", 0.2, "--preset", "faces")
    arguments = ("compare", pictures, "-o", tmp_path / "out", *flags, "--iterations", 2)
    text = anamorph(*arguments, succeeds=True).stdout
    assert "joint, iteration 1/2: objective" in text
    table = read_participants(tmp_path / "out" / "comparison.tsv")
    assert table.ids[0] == "face-1"
    assert len(table.ids) == N_IMAGES
    assert (tmp_path / "out" / "comparison.png").exists()
    means = anamorph(*arguments, "--force", "--json", succeeds=True).json["means"]
    for layout in ("joint", "shape"):
        values = table.covariate(f"log_likelihood_{layout}")
        assert np.isclose(means[layout]["log_likelihood"], values.mean())
    assert "--layouts must be among" in anamorph(*arguments, "--layouts", "both").error
    assert "--fraction must be between" in anamorph(*arguments, "--fraction", 1).error


def test_compare_takes_settings_from_a_file(anamorph, pictures, tmp_path, monkeypatch):
    fitted = []

    def compare_layouts(images, n_components, *, random_state, **arguments):
        fitted.append((n_components, random_state, images.pad))
        raise KeyboardInterrupt  # nothing has to be fitted to know

    monkeypatch.setattr(compare, "compare_layouts", compare_layouts)
    config = tmp_path / "settings.toml"
    config.write_text("components = [1, 3]\nseed = 7\n")
    arguments = ("compare", pictures, "-o", tmp_path / "out")
    anamorph(*arguments, "--config", config)
    anamorph(*arguments, "--config", config, "-k", 2, "--seed", 1, "--pad", 3)
    anamorph(*arguments, "--preset", "brains3d", "--likelihood", "gaussian", "-k", 5)
    assert fitted == [((1, 3), 7, 0), (2, 1, 3), (5, 0, 0)]


def test_compare_knows_where_channels_are(anamorph, tmp_path):
    for n, image in enumerate(blobs(5, SPACE)):
        save_array(tmp_path / f"{n}.npy", np.stack([image, 1 - image]))
    flags = ("-k", 2, "--layouts", "appearance", "--iterations", 1, "--channel-axis", 1)
    arguments = ("compare", tmp_path / "*.npy", "-o", tmp_path / "out", *flags, "--json")
    assert anamorph(*arguments, succeeds=True).json["n_images"] == 5


@pytest.fixture
def people(tmp_path):
    """A table with the sex of all but two faces, in another order than that of the files."""
    table = tmp_path / "participants.tsv"
    rows = "\n".join(f"face-{n}\t{'fm'[n % 2]}" for n in range(N_IMAGES, 2, -1))
    table.write_text(f"participant_id\tsex\n{rows}\n")
    return table


def test_a_report_finds_the_latents_beside_its_model(anamorph, picture_model, tmp_path):
    page = tmp_path / "report.html"
    anamorph("report", picture_model, "-o", page, succeeds=True)
    assert 'id="latents"' in page.read_text()
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(picture_model.read_bytes())
    anamorph("report", alone, "-o", page, "--force", succeeds=True)
    assert 'id="latents"' not in page.read_text()


@pytest.mark.parametrize("with_table", [True, False])
def test_a_report_of_images_with_labels(
    anamorph, picture_model, pictures, people, tmp_path, with_table
):
    model = tmp_path / "alone.safetensors"
    model.write_bytes(picture_model.read_bytes())
    latents = picture_model.with_name("pictures.latents.tsv")
    flags = ("--participants", people, "--label", "sex")
    table = ("--latents", latents) if with_table else ()
    page = tmp_path / "report.html"
    anamorph("report", model, pictures, "-o", page, *flags, *table, succeeds=True)
    text = page.read_text()
    assert "sex" in text
    assert "face-3" in text
    assert "face-1<" not in text  # of whom nothing is known


def test_labels_need_something_to_label(anamorph, picture_model, people, tmp_path):
    model = tmp_path / "alone.safetensors"
    model.write_bytes(picture_model.read_bytes())
    flags = ("--label", "sex", "--participants", people)
    assert "--label colours latents" in anamorph("report", model, *flags).error


def test_demo(anamorph, tmp_path, monkeypatch):
    def run_demo(folder, *, volumes=False, say=print):
        say(f"volumes: {volumes}")
        return [folder / "report.html"]

    monkeypatch.setattr(demo, "run_demo", run_demo)  # which has tests of its own
    result = anamorph("demo", "--volumes", "-o", tmp_path / "out", succeeds=True)
    assert "volumes: True" in result.stdout
    result = anamorph("demo", "-o", tmp_path / "out", "--json", succeeds=True)
    assert result.json["files"] == [str(tmp_path / "out" / "report.html")]
    assert "volumes: False" in result.stderr
