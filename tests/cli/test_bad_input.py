"""Bad input: one line with the name of the file, and nothing that was there is lost."""

import gzip
import sys

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.cli.commands import info
from anamorph.cli.terminal.images import natural_order
from tests.cli.conftest import QUICK, SPACE, VOLUME, blobs
from tests.images.filemaking import rotated_affine, save_array, save_nifti, save_picture


def truncated_gzip(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def wrong_magic(path):
    path.write_bytes(gzip.compress(b"\x89PNG" + bytes(1000)))


def not_gzip(path):
    path.write_bytes(b"hello" * 100)


def four_dimensions(path):
    save_nifti(path, np.stack(blobs(4, VOLUME), axis=-1), rotated_affine())


def zero_bytes(path):
    path.write_bytes(b"")


def a_directory(path):
    path.unlink()
    path.mkdir()


DAMAGES = [truncated_gzip, wrong_magic, not_gzip, four_dimensions, zero_bytes, a_directory]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_file_is_named_in_one_line(anamorph, volumes, volume_model, tmp_path, damage):
    bad = volumes / "sub-03.nii.gz"
    damage(bad)
    result = anamorph("fit", volumes, "-o", tmp_path / "model.safetensors", *QUICK)
    assert str(bad) in result.error
    assert not (tmp_path / "model.safetensors").exists()
    result = anamorph("encode", volume_model, volumes, "-o", tmp_path / "latents.tsv")
    assert str(bad) in result.error
    assert not (tmp_path / "latents.tsv").exists()


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_folder_is_no_model_file(anamorph, volumes, name):
    assert "is a folder" in anamorph("fit", volumes, "-o", name, *QUICK).error


def test_an_empty_name_is_not_the_folder_one_is_in(anamorph, volumes, tmp_path, monkeypatch):
    monkeypatch.chdir(volumes)
    assert "empty name" in anamorph("fit", "", "-o", tmp_path / "m.safetensors", *QUICK).error
    assert "empty name" in anamorph("check", "").error


def test_a_check_of_what_cannot_be_read_says_no_more(anamorph, tmp_path):
    save_nifti(tmp_path / "a.nii", np.stack(blobs(4, VOLUME), axis=-1), rotated_affine())
    result = anamorph("check", tmp_path / "a.nii")
    assert "or fit with --channel-axis -1" in result.error
    assert "looks like" not in result.stdout
    assert "nothing is odd" not in result.stdout


def test_modes_that_overflow_are_told(anamorph, volume_model, tmp_path):
    result = anamorph("modes", volume_model, "-o", tmp_path / "out", "--at", "1e9")
    assert "within 1000 standard deviations of 0, got 1e+09" in result.error


@pytest.mark.parametrize("far", [1e9, 900.0])
@pytest.mark.parametrize("command", ["reconstruct", "surface", "jacobians", "warp", "warps"])
def test_latents_of_a_table_that_are_too_far_are_told_by_row(
    anamorph, volume_model, volumes, tmp_path, command, far
):
    table, out = tmp_path / "far.tsv", tmp_path / "out"
    deviations = 1 / np.sqrt(np.diag(ShapeAppearanceModel.load(volume_model).latent_precision_))
    rows = [("near", 0, 0), ("ann", far * deviations[0], 0)]
    lines = ["\t".join(map(str, row)) for row in [("participant_id", "z1", "z2"), *rows]]
    table.write_text("\n".join(lines) + "\n")
    options = {"surface": ("--level", 0.5), "warp": ("--apply", volumes / "sub-0[12].nii.gz")}
    given = ("--latents", table, "-o", out, *options.get(command, ()))
    error = anamorph(command, volume_model, *given).error
    assert error.startswith(f"{table}: ann is ")
    assert "standard deviations from 0, and " in error
    assert not out.exists()


@pytest.mark.parametrize("name", ["a.png", "b.nii.gz", "notes"])
def test_a_file_is_no_folder_for_outputs(anamorph, volume_model, tmp_path, name):
    (tmp_path / "notes").write_text("kept")
    result = anamorph("modes", volume_model, "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "give a folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_file_that_is_not_there(anamorph, volume_model, tmp_path):
    result = anamorph("encode", volume_model, tmp_path / "no.nii", "-o", tmp_path / "latents.tsv")
    assert "no.nii does not exist" in result.error


def test_a_device_that_is_not_there(anamorph, volumes, volume_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    for name, problem in (("cuda", "needs CuPy"), ("tpu", "--device must be")):
        result = anamorph("fit", volumes, "-o", tmp_path / "model", *QUICK, "--device", name)
        assert problem in result.error
        latents = tmp_path / "latents.tsv"
        result = anamorph("encode", volume_model, volumes, "-o", latents, "--device", name)
        assert problem in result.error
    result = anamorph("encode", volume_model, volumes, "-o", latents, "--device", "auto")
    assert latents.exists()


def test_one_image_is_not_enough(anamorph, volumes, tmp_path):
    error = anamorph("fit", volumes / "sub-01.nii.gz", "-o", tmp_path / "model").error
    assert "sub-01.nii.gz is one image" in error


def test_a_file_that_vanishes_during_the_fit(anamorph, volumes, tmp_path, monkeypatch):
    from anamorph.cli.terminal.messages import FitDisplay

    def advance(self, progress):
        for path in volumes.iterdir():
            path.unlink()
        for path in (tmp_path / "cache").iterdir():
            path.unlink()

    monkeypatch.setattr(FitDisplay, "advance", advance)
    flags = ("-k", 2, "--iterations", 3, "--threads", 1, "--memory", "1kB")
    output = tmp_path / "model.safetensors"
    result = anamorph("fit", volumes, "-o", output, *flags, "--cache", tmp_path / "cache")
    assert "sub-01.nii.gz does not exist" in result.error
    assert (tmp_path / "model.checkpoint").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "does not exist"), (b"hello", "not a model file"), (b"", "not a model file")],
)
def test_bad_model_files(anamorph, tmp_path, content, problem):
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    error = anamorph("info", path).error
    assert str(path) in error
    assert problem in error


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-k", 10), "--components must be at most the number of images less one, got 10"),
        (("-k", 0), "--components must be an integer >= 1, got 0"),
        (("-k", "1,1"), "--components must be one integer when --latents='joint'"),
        (("--latents", "separate", "-k", 1), "for appearance and for shape, e.g. 10,20, got 1"),
        (("--likelihood", "student"), "--likelihood must be one of"),
        (("--likelihood", "bernoulli", "--preset", "cats"), "--preset must be one of"),
        (("--latents", "both"), "--latents must be one of"),
        (("--shape-penalty", "1,2"), "--shape-penalty must hold 5 numbers"),
        (("--iterations", -1), "--iterations must be an integer >= 0"),
        (("--seed", -1), "--seed must be an integer >= 0"),
        (("--voxel-size", "1,2"), "--voxel-size must hold 3 numbers"),
        (("--balance", "0,1"), "--balance must be two numbers"),
        (("--config", "no.toml"), "no.toml: No such file"),
    ],
)
def test_wrong_settings_are_named_as_flags(anamorph, volumes, tmp_path, flags, problem):
    defaults = ("-k", 2, "--iterations", 1, "--threads", 1)
    output = tmp_path / "model.safetensors"
    assert problem in anamorph("fit", volumes, "-o", output, *defaults, *flags).error


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fit",),
        ("fit", "a.nii"),
        ("fit", "a.nii", "-o", "m", "--labels", "--likelihood", "gaussian"),
        ("fit", "a.nii", "-o", "m", "--labels", "--tissues"),
        ("fit", "a.nii", "-o", "m", "-k", "many"),
        ("fit", "a.nii", "-o", "m", "--memory", "much"),
        ("sample", "m", "-o", "s", "-n", "0"),
        ("report", "m", "--label", "sex"),
        ("nothing",),
    ],
)
def test_wrong_usage_ends_with_2(anamorph, arguments):
    assert anamorph(*arguments).exit_code == 2


def test_latents_of_another_model(anamorph, volume_model, tmp_path):
    table = tmp_path / "latents.tsv"
    table.write_text("participant_id\tz1\tz2\tz3\na\t1\t2\t3\n")
    arguments = ("reconstruct", volume_model, "--latents", table, "-o", tmp_path)
    assert "must have columns z1 to z2" in anamorph(*arguments).error
    table.write_text("participant_id\tz1\tz2\na\t1\tn/a\n")
    assert "a latent of a is missing" in anamorph(*arguments).error
    table.write_text("participant_id\tz1\tz2\na/b\t1\t2\na_b\t1\t2\n")
    assert "two images would be written to" in anamorph(*arguments).error


def test_a_folder_that_cannot_be_made(anamorph, volume_model, tmp_path):
    (tmp_path / "file").write_text("mine")
    error = anamorph("sample", volume_model, "-o", tmp_path / "file" / "folder").error
    assert str(tmp_path / "file" / "folder") in error


def test_modes_that_are_not_there(anamorph, volume_model, tmp_path):
    error = anamorph("modes", volume_model, "--modes", "3", "-o", tmp_path).error
    assert error == "--modes must be from 1 to 2, got 3"


def test_probabilities_need_classes(anamorph, volume_model, tmp_path):
    result = anamorph("sample", volume_model, "--probabilities", "-o", tmp_path)
    assert result.exit_code == 2


def test_bugs_still_raise(anamorph, volume_model, monkeypatch):
    def fail(path, threads=None):
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(info, "load_model", fail)
    with pytest.raises(ValueError, match="broadcast"):
        anamorph("info", volume_model)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "model.latents.tsv", "people.tsv", "fit.toml", "link.png"]
)
def test_a_checkpoint_is_no_other_file_of_the_fit(anamorph, pictures, tmp_path, name):
    people, config = tmp_path / "people.tsv", tmp_path / "fit.toml"
    people.write_text("participant_id\nface-1\nface-2\nface-3\nface-4\n")
    config.write_text("components = 2\n")
    (tmp_path / "link.png").symlink_to(pictures / "face-1.png")
    files = ("-o", tmp_path / "model.safetensors", "--participants", people, "--config", config)
    result = anamorph("fit", pictures, *files, *QUICK, "--checkpoint", tmp_path / name)
    assert f"{tmp_path / name} is an input or output of the fit" in result.error
    assert (tmp_path / name).exists() == (not name.startswith("model"))


def test_tables_and_settings_are_inputs_too(anamorph, picture_model, pictures, tmp_path):
    people, config = tmp_path / "people.tsv", tmp_path / "comparison.tsv"
    people.write_text("participant_id\nface-1\nface-2\nface-3\nface-4\n")
    config.write_text("components = 2\n")
    latents = picture_model.with_name("pictures.latents.tsv")
    given = ("--participants", people, "--force")
    commands = [
        ("encode", picture_model, pictures, "-o", people),
        ("fit", pictures, "-o", people, *QUICK),
        ("fit", pictures, "-o", config, "--config", config, *QUICK),
        ("compare", pictures, "-o", tmp_path, "--config", config),
    ]
    for command in commands:
        assert "is one of the inputs" in anamorph(*command, *given).error
    assert people.read_text().startswith("participant_id\nface-1")
    assert config.read_text() == "components = 2\n"
    sums = tmp_path / "result.latents.tsv"
    sums.write_text(latents.read_text())
    arguments = ("arithmetic", picture_model, "face-1 - face-2", "--latents", sums)
    assert "is one of the inputs" in anamorph(*arguments, "-o", tmp_path, "--force").error


def test_images_that_do_not_fit_the_model_are_named(anamorph, picture_model, volumes, tmp_path):
    save_picture(tmp_path / "grey.png", np.zeros(SPACE, np.uint8))
    arguments = ("-o", tmp_path / "latents.tsv")
    error = anamorph("encode", picture_model, tmp_path / "grey.png", *arguments).error
    assert f"{tmp_path / 'grey.png'} must have the number of channels" in error
    error = anamorph("encode", picture_model, volumes, *arguments).error
    assert f"{volumes / 'sub-01.nii.gz'} must have the shape" in error


def test_tissue_maps_whose_patterns_were_not_quoted(anamorph, tmp_path):
    patterns = [tmp_path / "rc1*.nii", tmp_path / "rc2*.nii"]
    for n, image in enumerate(blobs(3, SPACE)):
        for kind in (1, 2):
            save_nifti(tmp_path / f"rc{kind}sub-{n}.nii", image / 3, rotated_affine())
    flags = ("--tissues", "-k", 1, "--iterations", 1, "--threads", 1)
    files = sorted(tmp_path.glob("*.nii"))
    model = tmp_path / "model.safetensors"
    for command in ("fit", "compare"):
        output = model if command == "fit" else tmp_path / "comparison"
        error = anamorph(command, *files, *flags[:1], "-o", output).error
        assert "6 files, which are the classes of one image: quote the patterns" in error
    anamorph("fit", *patterns, *flags, "-o", model, succeeds=True)
    error = anamorph("encode", model, *files, "--tissues", "-o", tmp_path / "latents.tsv").error
    assert "tissue maps of 2 classes: give as many quoted patterns, got 6" in error
    one = (tmp_path / "rc1sub-1.nii", tmp_path / "rc2sub-1.nii", "--tissues")
    anamorph("encode", model, *one, "-o", tmp_path / "latents.tsv", succeeds=True)


def test_a_checkpoint_that_went_further_is_told(anamorph, pictures, tmp_path):
    checkpoint = tmp_path / "fit.checkpoint"
    files = sorted(pictures.iterdir(), key=natural_order)
    ShapeAppearanceModel(2, n_iter=2, n_threads=1).fit(files, checkpoint=checkpoint)
    flags = ("-k", 2, "--iterations", 1, "--threads", 1, "--checkpoint", checkpoint)
    result = anamorph("fit", pictures, "-o", tmp_path / "model.safetensors", *flags, succeeds=True)
    assert (
        f"{checkpoint} was written after iteration 2, and the fit was to end after 1"
        in result.stdout
    )
    assert ShapeAppearanceModel.load(tmp_path / "model.safetensors").n_iter_ == 2


def test_a_checkpoint_of_another_fit_is_not_gone_on_from(anamorph, pictures, tmp_path):
    checkpoint = tmp_path / "fit.checkpoint"
    ShapeAppearanceModel(1, n_iter=1, n_threads=1).fit(blobs(4, SPACE), checkpoint=checkpoint)
    flags = ("--checkpoint", checkpoint, "-o", tmp_path / "model.safetensors")
    result = anamorph("fit", pictures, *QUICK, *flags)
    assert "with other images or settings" in result.error
    assert "Resuming" not in result.stdout


def test_comparisons_that_cannot_be_made(anamorph, pictures, tmp_path):
    arguments = ("compare", pictures, "-o", tmp_path / "out", "--iterations", 1)
    error = anamorph(*arguments, "-k", 1).error
    assert error == "--components must be at least 2 for layout 'separate', got 1"
    assert "--seed must be an integer" in anamorph(*arguments, "-k", 2, "--seed", -1).error
    image = np.full(SPACE, np.nan, np.float32)
    image[0, 0], image[0, 1] = 0.2, 0.7
    for n in range(4):
        save_array(tmp_path / f"{n}.npy", image)
    flags = ("-k", 2, "--fraction", 0.01, "--seed", 2)
    error = anamorph("compare", tmp_path / "*.npy", "-o", tmp_path / "out", *flags).error
    assert "no image has an observed voxel in its hidden box" in error
