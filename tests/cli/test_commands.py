"""Every command from end to end, on files: what is written, where, and in which space."""

import json
import re

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from anamorph import ShapeAppearanceModel
from anamorph.cli.terminal.places import save_figure
from anamorph.images.participants import read_participants
from anamorph.latents import mode_standard_deviations
from anamorph.plots import plot_arithmetic, plot_modes
from anamorph.storage.tables import read_latents
from tests.cli.conftest import N_IMAGES, QUICK, SPACE, VOLUME, blobs
from tests.images.filemaking import rotated_affine, save_array, save_nifti, save_picture


def check_space(path, shape=VOLUME):
    volume = nib.load(path)
    assert volume.shape == shape
    assert np.allclose(volume.affine, rotated_affine(), atol=1e-5)
    return volume


def read_picture(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


# ---- fit


def test_fit_writes_a_model_and_latents_and_removes_its_checkpoint(anamorph, pictures, tmp_path):
    output = tmp_path / "new" / "model.safetensors"
    result = anamorph("fit", pictures, "-o", output, *QUICK, succeeds=True)
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "model.latents.tsv",
        "model.safetensors",
    ]
    model = ShapeAppearanceModel.load(output)
    assert model.n_iter_ == 2
    names, latents = read_latents(output.parent / "model.latents.tsv", 2)
    assert names == [f"face-{n}" for n in range(1, N_IMAGES + 1)]
    assert latents.shape == (N_IMAGES, 2)
    for said in (
        "Reading 10 images",
        "Iteration 1/2: objective",
        "s/image",
        "2 iterations",
        "Wrote",
    ):
        assert said in result.stdout
    assert result.stderr == ""


def test_some_images_can_be_held_out(anamorph, volumes, tmp_path):
    output = tmp_path / "model"
    flags = ["--holdout", 0.3, "--pad", 1, "--decimation", 1, *QUICK, "--json"]
    result = anamorph("fit", volumes, "-o", output, *flags, succeeds=True)
    assert result.json["n_images"] == 7
    assert len(result.json["validation"]) == result.json["n_iterations"]
    model = ShapeAppearanceModel.load(output)
    assert model.best_iteration_ == result.json["best_iteration"]
    names = {line.split()[0] for line in (tmp_path / "model.latents.tsv").read_text().splitlines()}
    held = sorted(path for path in volumes.iterdir() if path.name[:6] not in names)
    assert len(held) == 3
    assert model.validation_[-1] == pytest.approx(model.score(held), rel=1e-6)
    for share in (1, -0.1, 0.01):
        assert "--holdout" in anamorph("fit", volumes, "-o", output, "--holdout", share).error


def test_flags_file_and_preset_reach_the_model(anamorph, pictures, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("components = 3\niterations = 1\nseed = 4\n")
    output = tmp_path / "model.safetensors"
    flags = ("--preset", "faces", "--config", config, "-k", "2", "--voxel-size", "1,2")
    anamorph("fit", pictures, "-o", output, *flags, "--threads", 1, succeeds=True)
    model = ShapeAppearanceModel.load(output)
    assert (model.n_components, model.n_iter, model.random_state) == (2, 1, 4)
    assert model.balance == (15.2, 0.8)
    assert model.settings_.voxel_size == (1, 2)


def test_voxel_sizes_reach_the_penalties(volume_model):
    settings = ShapeAppearanceModel.load(volume_model).settings_
    assert np.allclose(settings.voxel_size, (1.0, 1.5, 2.0))


def test_separate_latents(anamorph, pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    flags = ("-k", "1,2", "--latents", "separate", "--iterations", 1, "--threads", 1)
    anamorph("fit", pictures, "-o", output, *flags, succeeds=True)
    assert len(ShapeAppearanceModel.load(output).shape_basis_) == 2


def test_participants_choose_and_name_images(anamorph, volumes, tmp_path):
    table = tmp_path / "participants.tsv"
    rows = "\n".join(f"sub-{n:02d}" for n in range(2, 8))
    table.write_text(f"participant_id\n{rows}\n")
    output = tmp_path / "model.safetensors"
    anamorph("fit", volumes, "-o", output, "--participants", table, *QUICK, succeeds=True)
    assert read_participants(tmp_path / "model.latents.tsv").ids == rows.split()
    table.write_text("participant_id\nsub-99\n")
    result = anamorph("fit", volumes, "-o", output, "--participants", table, *QUICK, "--force")
    assert "has no participant whose id is in" in result.error


def test_tissue_maps(anamorph, tmp_path):
    for n, image in enumerate(blobs(N_IMAGES, SPACE), start=1):
        save_nifti(tmp_path / f"rc1sub-{n}.nii", image * 0.6, rotated_affine())
        save_nifti(tmp_path / f"rc2sub-{n}.nii", image * 0.3, rotated_affine())
    patterns = [tmp_path / "rc1*.nii", tmp_path / "rc2*.nii"]
    model = tmp_path / "model.safetensors"
    anamorph("fit", "--tissues", *patterns, "-o", model, *QUICK, succeeds=True)
    result = anamorph("reconstruct", model, *patterns, "-o", tmp_path / "out")
    assert "fitted to tissue maps: give --tissues" in result.error
    arguments = ("reconstruct", model, "--tissues", *patterns, "--probabilities")
    anamorph(*arguments, "-o", tmp_path / "out", succeeds=True)
    volume = check_space(tmp_path / "out" / "rc1sub-3_reconstruction.nii.gz", (*SPACE, 1, 3))
    assert np.allclose(volume.get_fdata().sum(axis=-1), 1, atol=1e-5)
    result = anamorph("fit", "--tissues", patterns[0], "-o", tmp_path / "other", *QUICK)
    assert "at least two" in result.error


def test_missing_field_of_view_with_resample(anamorph, volumes, tmp_path):
    moved = rotated_affine(origin=(-19.0, 10.0, 5.0))
    save_nifti(volumes / "sub-11.nii.gz", blobs(1, VOLUME, seed=5)[0], moved)
    output = tmp_path / "model.safetensors"
    result = anamorph("fit", volumes, "-o", output, *QUICK, "--no-resample")
    assert "sub-01.nii.gz" in result.error
    assert "sub-11.nii.gz differ in affine" in result.error
    assert "--resample" in result.error
    reference = volumes / "sub-01.nii.gz"
    anamorph("fit", volumes, "-o", output, *QUICK, "--reference", reference, succeeds=True)
    odd = volumes / "sub-11.nii.gz"
    anamorph("impute", output, odd, "-o", tmp_path / "whole", succeeds=True)
    filled = check_space(tmp_path / "whole" / "sub-11_imputed.nii.gz")
    assert np.isfinite(filled.get_fdata()).all()


# ---- models of volumes, with a margin that is cut off again


def test_encode_gives_the_latents_of_transform(anamorph, volume_model, volumes, tmp_path):
    output = tmp_path / "latents.tsv"
    result = anamorph(
        "encode", volume_model, volumes, "-o", output, "--evidence", "--json", succeeds=True
    )
    assert result.json["n_images"] == N_IMAGES
    names, latents = read_latents(output, 2)
    model = ShapeAppearanceModel.load(volume_model)
    files = sorted(volumes.iterdir())
    assert names == [f"sub-{n:02d}" for n in range(1, N_IMAGES + 1)]
    assert np.allclose(latents, model.transform(files), rtol=1e-4, atol=1e-5)
    evidence = read_participants(output).covariate("log_evidence")
    assert np.allclose(evidence, model.score_samples(files))


@pytest.mark.parametrize("part", ["both", "shape", "appearance"])
def test_reconstructions_are_in_the_space_of_the_images(
    anamorph, volume_model, volumes, tmp_path, part
):
    latents, folder = volume_model.with_name("volumes.latents.tsv"), tmp_path / "out"
    arguments = ("reconstruct", volume_model, "--latents", latents, "--part", part)
    anamorph(*arguments, "-o", folder, succeeds=True)
    assert len(list(folder.iterdir())) == N_IMAGES
    name = {"both": "reconstruction"}.get(part, part)
    volume = check_space(folder / f"sub-01_{name}.nii.gz")
    model = ShapeAppearanceModel.load(volume_model)
    expected = model.inverse_transform(read_latents(latents, 2)[1][:1], part)[0, 1:-1, 1:-1, 1:-1]
    assert np.allclose(volume.get_fdata(), expected, atol=1e-6)
    again = (volumes / "sub-01.nii.gz", folder / f"sub-01_{name}.nii.gz")
    anamorph("encode", volume_model, *again, "-o", tmp_path / "again.tsv", succeeds=True)


def test_modes_are_in_the_space_of_the_images(anamorph, volume_model, tmp_path):
    arguments = ("modes", volume_model, "--modes", "1,2", "--at", "-2,0,2", "--animate")
    said = anamorph(*arguments, "-o", tmp_path / "out", succeeds=True).stdout
    assert f"Wrote 9 files to {tmp_path / 'out'}; look at {tmp_path / 'out' / 'modes.png'}" in said
    volumes = [
        check_space(tmp_path / "out" / f"mode-{mode}_{place}sd.nii.gz").get_fdata()
        for mode in (1, 2)
        for place in ("-2", "0", "+2")
    ]
    assert np.array_equal(volumes[1], volumes[4])
    model = ShapeAppearanceModel.load(volume_model)
    deviation = mode_standard_deviations(model.latent_precision_)[1]
    expected = model.inverse_transform([[0, -2 * deviation]])[0, 1:-1, 1:-1, 1:-1]
    assert np.allclose(volumes[3], expected, atol=1e-6)
    save_figure(plot_modes(model, [0, 1], (-2, 0, 2)), tmp_path / "expected.png")
    drawn = read_picture(tmp_path / "out" / "modes.png")
    assert np.array_equal(drawn, read_picture(tmp_path / "expected.png"))
    with Image.open(tmp_path / "out" / "mode-2.gif") as film:
        assert film.n_frames > 2


def test_samples_and_their_latents(anamorph, volume_model, tmp_path):
    for folder in ("a", "b"):
        anamorph("sample", volume_model, "-n", 3, "-o", tmp_path / folder, succeeds=True)
    check_space(tmp_path / "a" / "sample-3.nii.gz")
    names, latents = read_latents(tmp_path / "a" / "latents.tsv", 2)
    assert names == ["sample-1", "sample-2", "sample-3"]
    assert np.array_equal(latents, read_latents(tmp_path / "b" / "latents.tsv", 2)[1])
    _, expected = ShapeAppearanceModel.load(volume_model).sample(3, random_state=0)
    assert np.array_equal(latents, expected)


def test_samples_have_noise_where_it_is_asked_for(anamorph, volume_model, tmp_path):
    for folder, options in (("plain", ()), ("noisy", ("--noise",))):
        output = tmp_path / folder
        anamorph("sample", volume_model, "-n", 1, *options, "-o", output, succeeds=True)
    plain, noisy = (
        nib.load(tmp_path / folder / "sample-1.nii.gz").get_fdata() for folder in ("plain", "noisy")
    )
    model = ShapeAppearanceModel.load(volume_model)
    ratio = np.var(noisy - plain) / model.noise_variance_[0]
    assert 0.8 < ratio < 1.2


@pytest.mark.parametrize(
    ("shape", "written", "flags"),
    [
        (SPACE, (*SPACE, 1), ()),
        ((*SPACE, 1), (*SPACE, 1), ()),
        ((*SPACE, 1, 2), (*SPACE, 1, 2), ("--channel-axis", "-1")),
        ((*VOLUME, 2), (*VOLUME, 2), ("--channel-axis", "-1")),
    ],
)
def test_slices_and_channels_of_nifti_are_read_again(anamorph, tmp_path, shape, written, flags):
    space = VOLUME if shape[:3] == VOLUME else SPACE
    for n, image in enumerate(blobs(N_IMAGES, space)):
        voxels = np.broadcast_to(image.reshape(*space, *(1,) * (len(shape) - len(space))), shape)
        save_nifti(tmp_path / f"{n}.nii", np.array(voxels), rotated_affine())
    model = tmp_path / "model.safetensors"
    anamorph("fit", tmp_path / "*.nii", "-o", model, *QUICK, *flags, succeeds=True)
    anamorph("sample", model, "-n", 2, "-o", tmp_path / "out", succeeds=True)
    check_space(tmp_path / "out" / "sample-2.nii.gz", written)
    anamorph("encode", model, tmp_path / "out", "-o", tmp_path / "latents.tsv", succeeds=True)


# ---- models of pictures


def test_pictures_in_pictures_out(anamorph, picture_model, pictures, tmp_path):
    anamorph("reconstruct", picture_model, pictures, "-o", tmp_path / "out", succeeds=True)
    picture = read_picture(tmp_path / "out" / "face-10_reconstruction.png")
    assert picture.shape == (*SPACE, 3)
    original = read_picture(pictures / "face-10.png").astype(float)
    assert np.abs(picture - original).mean() < 30


def test_transparent_pixels_are_filled_in(anamorph, picture_model, pictures, tmp_path):
    pixels = read_picture(pictures / "face-1.png")
    opacity = np.full((*SPACE, 1), 255, np.uint8)
    opacity[:3] = 0
    save_picture(tmp_path / "cut.png", np.concatenate([pixels, opacity], axis=-1))
    anamorph("impute", picture_model, tmp_path / "cut.png", "-o", tmp_path, succeeds=True)
    filled = read_picture(tmp_path / "cut_imputed.png")
    assert np.array_equal(filled[3:], pixels[3:])
    assert filled[:3].any()


def test_arithmetic(anamorph, picture_model, pictures, tmp_path):
    latents = picture_model.with_name("pictures.latents.tsv")
    total = "face-1 - face-2 + 0.5*face-10"
    arguments = ("arithmetic", picture_model, total, "--latents", latents, "--json")
    result = anamorph(*arguments, "-o", tmp_path / "sum", succeeds=True)
    names, codes = read_latents(latents, 2)
    row = dict(zip(names, codes, strict=True))
    expected = row["face-1"] - row["face-2"] + 0.5 * row["face-10"]
    assert np.allclose(result.json["latents"], expected)
    assert np.allclose(read_latents(tmp_path / "sum" / "result.latents.tsv", 2)[1], expected)
    assert read_picture(tmp_path / "sum" / "result.png").shape == (*SPACE, 3)
    summands = [(1, row["face-1"], "face-1"), (-1, row["face-2"], "face-2")]
    summands.append((0.5, row["face-10"], "face-10"))
    model = ShapeAppearanceModel.load(picture_model)
    save_figure(plot_arithmetic(model, summands), tmp_path / "expected.png")
    drawn = read_picture(tmp_path / "sum" / "arithmetic.png")
    assert np.array_equal(drawn, read_picture(tmp_path / "expected.png"))
    arguments = ("arithmetic", picture_model, "face-2 - face-2", pictures, "--json")
    result = anamorph(*arguments, "-o", tmp_path / "zero", succeeds=True)
    assert result.json["latents"] == [0, 0]
    result = anamorph("arithmetic", picture_model, "face-1 - face-77", pictures, "-o", tmp_path)
    assert "no image is called 'face-77'" in result.error


def test_arithmetic_that_begins_with_a_minus(anamorph, picture_model, tmp_path):
    latents = picture_model.with_name("pictures.latents.tsv")
    arguments = ("arithmetic", picture_model, " -face-1 + face-1", "--latents", latents, "--json")
    result = anamorph(*arguments, "-o", tmp_path / "zero", succeeds=True)
    assert result.json["latents"] == [0, 0]
    text = anamorph("arithmetic", "--help", succeeds=True).stdout
    assert '" -a + b"' in " ".join(text.replace("│", " ").split())  # wherever lines are broken


@pytest.mark.parametrize("highest", [1, 1000])
def test_arrays_stay_arrays(anamorph, tmp_path, highest):
    for n, image in enumerate(blobs(N_IMAGES, SPACE)):
        save_array(tmp_path / f"{n}.npy", highest * image)
    path = tmp_path / "model.safetensors"
    anamorph("fit", tmp_path / "*.npy", "-o", path, *QUICK, "--pad", 1, succeeds=True)
    anamorph("sample", path, "-n", 1, "-o", tmp_path / "out", succeeds=True)
    expected, _ = ShapeAppearanceModel.load(path).sample(1, random_state=0)
    written = np.load(tmp_path / "out" / "sample-1.npy")
    assert np.allclose(written, expected[0, 1:-1, 1:-1], rtol=1e-6)


def test_models_of_arrays_that_were_no_files_give_arrays(anamorph, tmp_path):
    path = tmp_path / "model.safetensors"
    ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(blobs(N_IMAGES, SPACE)).save(path)
    anamorph("sample", path, "-n", 1, "-o", tmp_path / "out", succeeds=True)
    assert np.load(tmp_path / "out" / "sample-1.npy").shape == SPACE


def test_pictures_without_a_range_become_arrays(anamorph, tmp_path):
    for n, image in enumerate(blobs(N_IMAGES, SPACE)):
        save_picture(tmp_path / f"{n}.tif", 1000 * image)
    path = tmp_path / "model.safetensors"
    anamorph("fit", tmp_path / "*.tif", "-o", path, *QUICK, succeeds=True)
    anamorph("sample", path, "-n", 1, "-o", tmp_path / "out", succeeds=True)
    assert np.load(tmp_path / "out" / "sample-1.npy").max() > 100


# ---- models of label maps


def test_label_maps_in_label_maps_out(anamorph, label_model, label_maps, tmp_path):
    anamorph("reconstruct", label_model, label_maps, "-o", tmp_path / "out", succeeds=True)
    volume = check_space(tmp_path / "out" / "sub-04_reconstruction.nii.gz")
    labels = np.asarray(volume.dataobj)
    assert labels.dtype == np.uint8
    original = np.asarray(nib.load(label_maps / "sub-04.nii.gz").dataobj)
    assert (labels == original).mean() > 0.7
    arguments = ("reconstruct", label_model, label_maps, "--probabilities")
    anamorph(*arguments, "-o", tmp_path / "probabilities", succeeds=True)
    path = tmp_path / "probabilities" / "sub-04_reconstruction.nii.gz"
    probabilities = check_space(path, (*VOLUME, 3)).get_fdata()
    assert np.allclose(probabilities.sum(axis=-1), 1, atol=1e-5)
    assert np.array_equal(probabilities.argmax(axis=-1), labels)


def test_label_pictures(anamorph, tmp_path):
    for n, image in enumerate(blobs(N_IMAGES, SPACE)):
        save_picture(tmp_path / f"{n}.png", np.digitize(image, [0.3, 0.7]).astype(np.uint8))
    model = tmp_path / "model.safetensors"
    anamorph("fit", tmp_path / "*.png", "--labels", "-o", model, *QUICK, succeeds=True)
    anamorph("impute", model, tmp_path / "3.png", "-o", tmp_path / "out", succeeds=True)
    labels = read_picture(tmp_path / "out" / "3_imputed.png")
    assert np.array_equal(labels, read_picture(tmp_path / "3.png"))


# ---- looking at a model


def test_info(anamorph, volume_model, label_model):
    facts = anamorph("info", volume_model, "--json", succeeds=True).json
    assert facts["likelihood"] == "gaussian"
    assert facts["grid"] == [length + 2 for length in VOLUME]
    assert facts["margin"] == 1
    assert facts["images"] == N_IMAGES
    assert facts["bytes"] == volume_model.stat().st_size
    assert np.allclose(facts["voxel_size"], (1.0, 1.5, 2.0))
    text = anamorph("info", label_model, succeeds=True).stdout
    assert "categorical" in text
    assert "8 x 6 x 7" in text


def test_info_tells_of_settings_that_are_not_the_default(anamorph, volume_model, tmp_path):
    names = ("align", "intensity", "residual", "levels", "decimation")
    defaults = ("none", "global", "none", 1, "auto")
    facts = anamorph("info", volume_model, "--json", succeeds=True).json
    assert tuple(facts[name] for name in names) == defaults
    text = anamorph("info", volume_model, succeeds=True).stdout
    assert not any(re.search(rf"^ *{name} ", text, re.MULTILINE) for name in names)
    given = {"align": "translation", "intensity": "per image", "residual": "after", "levels": 2}
    model = ShapeAppearanceModel(1, n_iter=1, decimation=0.5, n_threads=1, **given)
    model.fit(blobs(4, (16, 16))).save(tmp_path / "model.safetensors")
    facts = anamorph("info", tmp_path / "model.safetensors", "--json", succeeds=True).json
    expected = given | {"decimation": 0.5}
    assert {name: facts[name] for name in names} == expected
    text = anamorph("info", tmp_path / "model.safetensors", succeeds=True).stdout
    for name, value in expected.items():
        assert re.search(rf"^ *{name} +{value} *$", text, re.MULTILINE)


# ---- what all commands have in common


def test_json_is_one_object_and_everything_else_goes_to_standard_error(
    anamorph, pictures, tmp_path
):
    output = tmp_path / "model.safetensors"
    result = anamorph("fit", pictures, "-o", output, *QUICK, "--json", succeeds=True)
    facts = json.loads(result.stdout)
    assert facts["command"] == "fit"
    assert facts["n_images"] == N_IMAGES
    assert facts["n_iterations"] == 2
    assert facts["files"] == [str(output), str(tmp_path / "model.latents.tsv")]
    assert "Iteration 2/2" in result.stderr


def test_quiet_says_nothing(anamorph, picture_model, pictures, tmp_path):
    commands = [
        ("fit", pictures, "-o", tmp_path / "model.safetensors", *QUICK),
        ("encode", picture_model, pictures, "-o", tmp_path / "latents.tsv"),
        ("sample", picture_model, "-n", 1, "-o", tmp_path / "samples"),
    ]
    for command in commands:
        result = anamorph(*command, "--quiet", succeeds=True)
        assert (result.stdout, result.stderr) == ("", "")


def test_what_was_asked_for_is_shown_also_when_quiet(anamorph, picture_model):
    said = anamorph("info", picture_model, "--quiet", succeeds=True).stdout
    assert "gaussian" in said
    assert re.search(r"time +[\d.]+ m?s\b", said)


def test_outputs_are_replaced_only_by_force_and_inputs_never(
    anamorph, picture_model, pictures, tmp_path
):
    output = tmp_path / "latents.tsv"
    output.write_text("mine")
    arguments = ("encode", picture_model, pictures, "-o", output)
    assert "exists already: use --force" in anamorph(*arguments).error
    assert output.read_text() == "mine"
    anamorph(*arguments, "--force", succeeds=True)
    assert len(read_participants(output).ids) == N_IMAGES
    image = pictures / "face-1.png"
    result = anamorph("encode", picture_model, pictures, "-o", image, "--force")
    assert "is one of the inputs" in result.error
    assert read_picture(image).shape == (*SPACE, 3)


def test_images_or_latents_but_not_both_and_not_neither(
    anamorph, picture_model, pictures, tmp_path
):
    latents = picture_model.with_name("pictures.latents.tsv")
    for given in ((), (pictures, "--latents", latents)):
        result = anamorph("reconstruct", picture_model, *given, "-o", tmp_path)
        assert result.exit_code == 2
        assert "not both" in result.stderr
