"""``anamorph explore``, and the link to its page in a report."""

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from anamorph.cli.app import app
from anamorph.storage.tables import write_latents
from tests.explorer.models import K, N, facts_in, latents_of, model_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a model, images, a table of latents and one of participants."""
    model, images = model_of("digits")
    model.save(tmp_path / "m.safetensors")
    (tmp_path / "scans").mkdir()
    names = [f"sub-{n:02d}" for n in range(N)]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(np.uint8(255 * image)).save(tmp_path / "scans" / f"{name}.png")
    write_latents(tmp_path / "z.tsv", names, latents_of(), {"digit": list(range(N))})
    rows = [f"{name}\t{20 + n}\t{'fm'[n % 2]}" for n, name in enumerate(names)]
    table = "\n".join(["participant_id\tage\tsex", *rows])
    (tmp_path / "people.tsv").write_text(table + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def people_in(folder, name="explorer.html"):
    return facts_in((folder / name).read_text(encoding="utf-8"))["people"]


def test_a_model_alone(folder):
    done = run("explore", "m.safetensors", "-o", "a.html", "--title", "Digits")
    assert done.exit_code == 0, done.output
    assert "Wrote a.html" in done.output
    assert people_in(folder, "a.html") is None
    assert "individuals" not in done.output
    again = run("explore", "m.safetensors", "-o", "a.html")
    assert again.exit_code == 1


@pytest.mark.parametrize("table", [["z.tsv"], ["--latents", "z.tsv"]])
def test_with_a_table_of_latents(folder, table):
    done = run("explore", "m.safetensors", *table)
    assert done.exit_code == 0, done.output
    assert "holds data of individuals" in done.output
    people = people_in(folder)
    np.testing.assert_allclose(people["latents"], latents_of(), rtol=1e-5)
    assert [column["name"] for column in people["columns"]] == ["digit"]
    assert people["nPictures"] == 0


def test_with_images_latents_and_participants(folder):
    done = run("explore", "m.safetensors", "scans", "--latents", "z.tsv", "--participants",
               "people.tsv")  # fmt: skip
    assert done.exit_code == 0, done.output
    people = people_in(folder)
    assert people["nPictures"] == N
    assert [(c["name"], c["kind"]) for c in people["columns"]] == [
        ("digit", "number"), ("age", "number"), ("sex", "text"),
    ]  # fmt: skip
    assert people["names"][3] == "sub-03"


def test_a_table_of_another_model_is_an_error(folder):
    write_latents(folder / "other.tsv", ["a"], np.zeros((1, K + 1)))
    done = run("explore", "m.safetensors", "other.tsv")
    assert done.exit_code == 1
    assert not (folder / "explorer.html").exists()


def test_a_small_budget_is_one_line(folder):
    done = run("explore", "m.safetensors", "--max-megabytes", "0.01")
    assert done.exit_code == 1
    assert "max_megabytes must be at least" in done.output or "--max-megabytes" in done.output


@pytest.mark.slow
def test_a_report_links_to_the_page(folder):
    assert run("report", "m.safetensors", "--explorer", "no.html").exit_code == 1
    (folder / "sub folder").mkdir()
    assert run("explore", "m.safetensors", "-o", "sub folder/e.html").exit_code == 0
    done = run("report", "m.safetensors", "--explorer", "sub folder/e.html", "-o", "r.html")
    assert done.exit_code == 0, done.output
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert 'href="sub%20folder/e.html"' in page
