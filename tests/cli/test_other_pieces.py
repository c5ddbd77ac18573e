"""Commands that hand over to other pieces: what these are given, and what becomes of it."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from anamorph import plots
from anamorph.io.participants import read_participants
from anamorph.progress import Progress
from tests.cli.conftest import N_IMAGES


@pytest.fixture
def piece(monkeypatch):
    """Return a function that puts a stand-in in the place of a module."""

    def put(name, **functions):
        module = ModuleType(name)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def test_compare(anamorph, pictures, tmp_path, piece, monkeypatch):
    given = {}

    def compare_layouts(images, n_components, **options):
        given.update(options, n_images=len(images), n_components=n_components)
        layouts = options["layouts"]
        options["progress"](layouts[0], Progress(1, 2, N_IMAGES, (5.0,), (1.0,)))
        return SimpleNamespace(
            layouts=layouts,
            log_likelihood={name: np.full(N_IMAGES, -n) for n, name in enumerate(layouts)},
            squared_error={name: np.full(N_IMAGES, 3.0) for name in layouts},
            n_hidden=np.full(N_IMAGES, 30),
        )

    piece("anamorph.compare", compare_layouts=compare_layouts)
    monkeypatch.setattr(plots, "plot_comparison", lambda _: Figure(), raising=False)
    flags = ("-k", 3, "--layouts", "joint,shape", "--fraction", 0.2, "--preset", "faces")
    arguments = ("compare", pictures, "-o", tmp_path / "out", *flags, "--iterations", 2)
    text = anamorph(*arguments, succeeds=True).stdout
    assert "joint, iteration 1/2: objective 5, 0.1 s/image, 1 s left" in text
    assert "0.1" in text
    assert (given["n_images"], given["n_components"]) == (N_IMAGES, 3)
    assert (given["layouts"], given["fraction"]) == (("joint", "shape"), 0.2)
    assert (given["n_iter"], given["balance"]) == (2, (15.2, 0.8))
    table = read_participants(tmp_path / "out" / "comparison.tsv")
    assert table.ids[0] == "face-1"
    assert table.covariate("log_likelihood_shape").tolist() == [-1] * N_IMAGES
    assert (tmp_path / "out" / "comparison.png").exists()
    means = anamorph(*arguments, "--force", "--json", succeeds=True).json["means"]
    assert means["shape"] == {"log_likelihood": -1, "squared_error": 0.1}
    assert "--layouts must be among" in anamorph(*arguments, "--layouts", "both").error
    assert "--fraction must be between" in anamorph(*arguments, "--fraction", 1).error


def test_report(anamorph, picture_model, pictures, tmp_path, piece):
    given = {}

    def write_report(model, path, **options):
        given.update(options)
        path.write_text("report")

    piece("anamorph.report", write_report=write_report)
    page = tmp_path / "report.html"
    anamorph("report", picture_model, "-o", page, succeeds=True)
    assert page.read_text() == "report"
    assert given["images"] is given["latents"] is given["labels"] is None
    people = tmp_path / "participants.tsv"
    rows = "\n".join(f"face-{n}\t{'fm'[n % 2]}" for n in range(N_IMAGES, 2, -1))
    people.write_text(f"participant_id\tsex\n{rows}\n")
    latents = picture_model.with_name("pictures.latents.tsv")
    flags = ("--latents", latents, "--participants", people, "--label", "sex", "--force")
    anamorph("report", picture_model, pictures, "-o", page, *flags, succeeds=True)
    assert given["names"] == [f"face-{n}" for n in range(3, N_IMAGES + 1)]
    assert given["labels"].tolist() == list("mfmfmfmf")
    assert given["label_name"] == "sex"
    assert [path.name for path in given["images"]] == [f"{name}.png" for name in given["names"]]
    table = read_participants(latents)
    assert given["latents"][0, 0] == table.covariate("z1")[table.ids.index("face-3")]
    flags = ("--label", "sex", "--participants", people, "--force")
    assert "nothing to label" in anamorph("report", picture_model, "-o", page, *flags).error


def test_demo(anamorph, tmp_path, piece):
    def run_demo(folder, *, volumes=False, say=print):
        say(f"volumes: {volumes}")
        return [folder / "report.html"]

    piece("anamorph.demo", run_demo=run_demo)
    result = anamorph("demo", "--volumes", "-o", tmp_path / "out", succeeds=True)
    assert "volumes: True" in result.stdout
    result = anamorph("demo", "-o", tmp_path / "out", "--json", succeeds=True)
    assert result.json["files"] == [str(tmp_path / "out" / "report.html")]
    assert "volumes: False" in result.stderr
