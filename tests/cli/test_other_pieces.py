"""Commands that hand over to other pieces: comparisons, reports and the demonstration."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.cli.commands import demo
from anamorph.compare import layouts as compare
from anamorph.images.participants import read_participants
from anamorph.storage.tables import write_latents
from tests.cli.conftest import N_IMAGES, SPACE, VOLUME, blobs
from tests.images.filemaking import rotated_affine, save_array, save_nifti


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


# What reports are about; how they look has tests of its own.


@pytest.fixture
def shown(monkeypatch):
    """What the last report was told, without the work of drawing it."""
    given = {}

    def write_report(*_, **told):
        given.clear()
        given.update(told)

    monkeypatch.setattr("anamorph.report.write_report", write_report)
    return given


@pytest.fixture
def ages(tmp_path):
    """A table with the age of all faces but one."""
    table = tmp_path / "ages.tsv"
    rows = [f"face-{n}\t{20 + n if n > 1 else 'n/a'}" for n in range(N_IMAGES, 0, -1)]
    table.write_text("\n".join(["participant_id\tage", *rows]))
    return table


def test_latents_beside_a_model_may_be_of_other_images_with_the_same_names(
    anamorph, picture_model, pictures, shown, tmp_path
):
    names = [f"face-{n}" for n in range(1, N_IMAGES + 1)]
    anamorph("report", picture_model, pictures, "-o", tmp_path / "r.html", succeeds=True)
    assert shown["names"] == names
    assert "latents" not in shown
    anamorph("report", picture_model, "-o", tmp_path / "r.html", succeeds=True)
    assert shown["names"] == names
    assert shown["latents"].shape == (N_IMAGES, 2)


def test_a_table_of_another_model_is_left_out_unless_it_is_given(
    anamorph, picture_model, shown, tmp_path
):
    model, table = tmp_path / "m.safetensors", tmp_path / "m.latents.tsv"
    model.write_bytes(picture_model.read_bytes())
    write_latents(table, ["a", "b"], np.zeros((2, 3)))
    arguments = ("report", model, "-o", tmp_path / "r.html")
    assert "Latents are not shown" in anamorph(*arguments, succeeds=True).stdout
    assert "latents" not in shown
    assert "must have columns z1 to z2" in anamorph(*arguments, "--latents", table).error


def test_reports_resample_and_keep_a_cache(anamorph, volume_model, volumes, shown, tmp_path):
    moved = rotated_affine(origin=(-19.0, 10.0, 5.0))
    save_nifti(volumes / "sub-11.nii.gz", blobs(1, VOLUME, seed=5)[0], moved)
    arguments = ("report", volume_model, volumes, "-o", tmp_path / "r.html")
    assert "--resample" in anamorph(*arguments, "--no-resample").error
    cache = tmp_path / "cache"
    anamorph(*arguments, "--cache", cache, succeeds=True)
    whole, moved = shown["images"].read(slice(9, 11))
    assert np.isnan(moved).sum() > np.isnan(whole).sum()
    assert any(cache.iterdir())


def test_numbers_are_a_quantity_and_may_be_missing(
    anamorph, picture_model, pictures, ages, shown, tmp_path
):
    flags = ("--participants", ages, "--label", "age", "-o", tmp_path / "r.html")
    anamorph("report", picture_model, pictures, *flags, succeeds=True)
    assert shown["labels"].tolist() == [None, *range(22, 21 + N_IMAGES)]


def test_rows_of_latents_are_named_by_participant_or_by_file(
    anamorph, picture_model, pictures, ages, shown, tmp_path
):
    for path in sorted(pictures.iterdir()):
        path.rename(path.with_stem(f"{path.stem}_photo"))
    table = tmp_path / "latents.tsv"
    latents = np.arange(2.0 * N_IMAGES).reshape(N_IMAGES, 2)
    arguments = ("report", picture_model, pictures, "--participants", ages, "--latents", table)
    for ending in ("", "_photo"):
        names = [f"face-{n}{ending}" for n in range(N_IMAGES, 0, -1)]
        write_latents(table, names, latents)
        anamorph(*arguments, "-o", tmp_path / "r.html", succeeds=True)
        assert np.array_equal(shown["latents"], latents[::-1])
    write_latents(table, names[1:], latents[1:])
    error = anamorph(*arguments, "-o", tmp_path / "r.html").error
    assert f"has no row for face-{N_IMAGES}: encode" in error


def test_reports_are_not_begun_where_they_have_no_place(
    anamorph, picture_model, pictures, people, tmp_path, monkeypatch
):
    page = tmp_path / "r.html"
    page.write_text("mine")
    monkeypatch.setattr(ShapeAppearanceModel, "transform", None)  # to call it would be an error
    arguments = ("report", picture_model, pictures, "--participants", people, "--label", "sex")
    assert "exists already" in anamorph(*arguments, "-o", page).error
    for path in (pictures / "face-3.png", people):
        assert "is one of the inputs" in anamorph(*arguments, "-o", path, "--force").error


def test_demo(anamorph, tmp_path, monkeypatch):
    def run_demo(folder, *, volumes=False, n_threads=None, say=print):
        say(f"volumes: {volumes}, threads: {n_threads}")
        return [folder / "report.html"]

    monkeypatch.setattr(demo, "run_demo", run_demo)  # which has tests of its own
    flags = ("--volumes", "--threads", 2)
    result = anamorph("demo", *flags, "-o", tmp_path / "out", succeeds=True)
    assert "volumes: True, threads: 2" in result.stdout
    result = anamorph("demo", "-o", tmp_path / "out", "--json", succeeds=True)
    assert result.json["files"] == [str(tmp_path / "out" / "report.html")]
    assert "volumes: False" in result.stderr
