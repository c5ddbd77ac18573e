"""What a new user meets first: wrong places, skipped files, missing voxels, grids, `check`."""

import json
import shutil

import nibabel as nib
import numpy as np
import pytest

from tests.cli.conftest import QUICK, VOLUME, blobs
from tests.images.filemaking import rotated_affine, save_array, save_nifti, save_picture

FAR = rotated_affine(origin=(400.0, 10.0, 5.0))


def moved(by):
    """Return the affine of the volumes, moved by some voxels along the first axis."""
    affine = rotated_affine()
    affine[:3, 3] += by * affine[:3, 0]
    return affine


# ---- nothing observed


def test_a_label_map_outside_the_grid_is_not_encoded(anamorph, label_model, tmp_path):
    """It had latents of 0 and a log evidence of 0, the best there is."""
    labels = np.digitize(blobs(1, VOLUME)[0], [0.3, 0.7]).astype(np.uint8)
    path = save_nifti(tmp_path / "far.nii.gz", labels, FAR)
    result = anamorph("encode", label_model, path, "--resample", "-o", tmp_path / "z.tsv")
    assert "far.nii.gz has no observed voxel" in result.error
    assert "wholly outside the model's grid" in result.error
    assert not (tmp_path / "z.tsv").exists()


def test_intensities_outside_the_grid_are_not_encoded(anamorph, volume_model, tmp_path):
    path = save_nifti(tmp_path / "far.nii.gz", blobs(1, VOLUME)[0], FAR)
    result = anamorph("encode", volume_model, path, "--resample", "-o", tmp_path / "z.tsv")
    assert "far.nii.gz has no observed voxel: it lies wholly outside the model's" in result.error


@pytest.mark.parametrize("kind", ["labels", "gaussian", "bernoulli", "poisson"])
def test_a_fit_says_why_nothing_is_observed(anamorph, tmp_path, kind):
    """It said that a label map was constant (-1)."""
    images = blobs(4, VOLUME)
    if kind == "labels":
        images = np.digitize(images, [0.3, 0.7]).astype(np.float32)
    paths = [
        save_nifti(tmp_path / f"{n}.nii.gz", image, rotated_affine())
        for n, image in enumerate(images)
    ]
    paths.append(save_nifti(tmp_path / "far.nii.gz", images[0], FAR))
    options = ("--labels",) if kind == "labels" else ("--likelihood", kind)
    output = tmp_path / "model.safetensors"
    result = anamorph(
        "fit", *paths, "-o", output, *options, *QUICK, "--reference", paths[0], "--force"
    )
    assert "far.nii.gz has no observed voxel: it lies wholly outside the common" in result.error
    save_nifti(tmp_path / "far.nii.gz", np.full(VOLUME, np.nan, np.float32), rotated_affine())
    result = anamorph("fit", *paths, "-o", output, *options, *QUICK)
    assert "far.nii.gz has no observed voxel: all its voxels are missing" in result.error
    assert not output.exists()


def test_advice_is_about_what_a_command_can_change(anamorph, label_model, volume_model, tmp_path):
    """It named options of `fit` to those who encode: --scale, --labels, --channel-axis."""
    scan = save_nifti(tmp_path / "scan.nii.gz", blobs(1, VOLUME)[0], rotated_affine())
    labels = np.digitize(blobs(1, VOLUME)[0], [0.3, 0.7]).astype(np.uint8)
    segmentation = save_nifti(tmp_path / "labels.nii.gz", labels, rotated_affine())
    for command, end in (("encode", "tsv"), ("quality", "html")):
        output = ("-o", tmp_path / f"new.{end}")
        error = anamorph(command, volume_model, segmentation, *output).error
        assert "look like labels, and the model was not fitted to labels: give images" in error
        assert "--scale" not in error
        error = anamorph(command, label_model, scan, *output).error
        assert "fractions, not labels 0, 1, 2, ..., and the model was fitted to label maps" in error
        assert "channel" not in error
    other = save_nifti(tmp_path / "other.nii.gz", blobs(2, VOLUME)[1], rotated_affine())
    fit = ("fit", scan, other, "-o", tmp_path / "m.safetensors", "--labels")
    assert "give --channel-axis -1 if" in anamorph(*fit).error


def test_images_far_apart_are_not_brought_onto_a_huge_grid(anamorph, volumes, tmp_path):
    save_nifti(volumes / "far.nii.gz", blobs(1, VOLUME)[0], FAR)
    result = anamorph("fit", volumes, "--resample", "-o", tmp_path / "m.safetensors", *QUICK)
    assert "a grid that holds all images would be" in result.error
    assert "far.nii.gz is far from the others" in result.error
    assert "--reference" in result.error


# ---- what a folder holds


def test_skipped_files_are_named(anamorph, volumes, tmp_path):
    (volumes / "scan.dcm").write_bytes(b"x")
    (volumes / "sub-01.json").write_text("{}")
    (volumes / ".hidden").write_text("")
    (volumes / "more").mkdir()
    result = anamorph("fit", volumes, "-o", tmp_path / "m.safetensors", *QUICK, succeeds=True)
    (line,) = [line for line in result.stdout.splitlines() if ": skipped" in line]
    assert "2 files" in line
    assert "scan.dcm" in line
    assert "1 .dcm" in line
    assert "1 folder in it, not searched" in line
    assert "hidden" not in line


def test_freesurfer_and_analyze_volumes_are_read(anamorph, tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    images = blobs(4, VOLUME)
    affine = np.diag([-1.0, 1, 1, 1])
    nib.save(nib.MGHImage(images[0], affine), folder / "a.mgz")
    nib.save(nib.MGHImage(images[1], affine), folder / "b.mgh")
    nib.save(nib.Nifti1Pair(images[2], affine), folder / "c.img")
    nib.save(nib.Nifti1Image(images[3], affine), folder / "d.nii")
    result = anamorph("check", folder, "--json", succeeds=True)
    found = result.json["files"]
    assert [file["path"].rsplit("/")[-1] for file in found] == ["a.mgz", "b.mgh", "c.img", "d.nii"]
    for file, image in zip(found, images, strict=True):
        assert file["shape"] == list(VOLUME)
        assert file["orientation"] == "LAS"
        assert file["highest"] == pytest.approx(float(image.max()))
    anamorph("fit", folder, "-o", tmp_path / "m.safetensors", *QUICK, succeeds=True)


def test_analyze_without_a_place_is_said_to_be_a_guess(anamorph, tmp_path):
    for n, image in enumerate(blobs(4, VOLUME)):
        nib.save(nib.AnalyzeImage(image, None), tmp_path / f"{n}.img")
    result = anamorph("fit", tmp_path / "0.hdr", *sorted(tmp_path.glob("[123].img")), *QUICK,
                      "-o", tmp_path / "m.safetensors", succeeds=True)  # fmt: skip
    assert "4 of 4 files do not say where their voxels are" in result.stdout


def test_volumes_without_sform_and_qform_are_said_to_be_a_guess(anamorph, tmp_path):
    for n, image in enumerate(blobs(4, VOLUME)):
        volume = nib.Nifti1Image(image, None)
        volume.set_sform(None, 0)
        volume.set_qform(None, 0)
        nib.save(volume, tmp_path / f"{n}.nii.gz")
    result = anamorph("fit", tmp_path, "-o", tmp_path / "m.safetensors", *QUICK, succeeds=True)
    assert "place and orientation are guessed" in result.stdout


def test_bids_roots_get_a_hint(anamorph, volumes, tmp_path):
    root = tmp_path / "bids"
    for path in sorted(volumes.iterdir())[:3]:
        subject = path.name.removesuffix(".nii.gz")
        folder = root / subject / "ses-1" / "anat"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / f"{subject}_ses-1_T1w.nii.gz")
    (root / "dataset_description.json").write_text("{}")
    result = anamorph("fit", root, "-o", tmp_path / "m.safetensors", *QUICK)
    pattern = f"{root}/sub-*/ses-*/anat/*_T1w.nii.gz"
    assert (
        f"is the root of a BIDS dataset: say which of its images, e.g. '{pattern}'" in result.error
    )
    anamorph("fit", pattern, "-o", tmp_path / "m.safetensors", *QUICK, succeeds=True)


# ---- labels with gaps


def test_labels_come_back_as_they_were(anamorph, tmp_path):
    table = np.array([0, 17, 530], np.int16)
    for n, image in enumerate(blobs(6, VOLUME)):
        save_nifti(tmp_path / f"{n}.nii.gz", table[np.digitize(image, [0.05, 0.3])])
    model = tmp_path / "m.safetensors"
    result = anamorph("fit", tmp_path, "--labels", "-o", model, *QUICK, succeeds=True)
    assert "Understood: labels 0, 17, 530 are 3 classes" in result.stdout
    anamorph("reconstruct", model, tmp_path / "0.nii.gz", "-o", tmp_path / "r", succeeds=True)
    labels = np.asarray(nib.load(tmp_path / "r" / "0_reconstruction.nii.gz").dataobj)
    assert set(np.unique(labels)) == {0, 17, 530}


# ---- missing voxels


def test_impute_says_where_nothing_was_missing(anamorph, volumes, volume_model, tmp_path):
    """Crops that are filled with zeros came back as they were, and impute said nothing."""
    folder = tmp_path / "crops"
    folder.mkdir()
    whole = np.asarray(nib.load(volumes / "sub-01.nii.gz").dataobj)
    crop = whole.copy()
    crop[:3] = 0
    save_nifti(folder / "crop.nii.gz", crop, rotated_affine())
    save_nifti(folder / "whole.nii.gz", whole, rotated_affine())

    def impute(*options):
        output = tmp_path / "imputed"
        result = anamorph(
            "impute", volume_model, folder, "-o", output, "--force", *options, succeeds=True
        )
        filled = np.asarray(nib.load(output / "crop_imputed.nii.gz").dataobj)
        return result, np.abs(filled[:3] - whole[:3]).mean()

    result, untouched = impute()
    assert "Nothing was missing in 2 of 2 images" in result.stdout
    assert "--missing-value 0" in result.stdout
    result, filled = impute("--missing-value", "0")
    assert "Nothing was missing in 1 of 2 images" in result.stdout
    assert filled < untouched / 2
    mask = np.ones(VOLUME, np.uint8)
    mask[:3] = 0
    path = save_nifti(tmp_path / "mask.nii.gz", mask, rotated_affine())
    result, masked = impute("--mask", path)
    assert "Nothing was missing" not in result.stdout
    assert masked == pytest.approx(filled, abs=1e-5)


def test_masks_may_be_one_for_each_image(anamorph, volumes, volume_model, tmp_path):
    masks = tmp_path / "masks"
    masks.mkdir()
    for n, path in enumerate(sorted(volumes.iterdir())):
        mask = np.ones(VOLUME, np.uint8)
        mask[:n] = 0
        save_nifti(masks / path.name, mask, rotated_affine())
    result = anamorph(
        "impute",
        volume_model,
        *sorted(volumes.iterdir())[:8],
        "--mask",
        masks,
        "-o",
        tmp_path / "o",
    )
    assert "--mask must be one file, or one for each of 8 images, got 10" in result.error
    (masks / "sub-10.nii.gz").unlink()
    (masks / "sub-09.nii.gz").unlink()
    result = anamorph(
        *("impute", volume_model, *sorted(volumes.iterdir())[:8], "--mask", masks),
        *("-o", tmp_path / "o", "--json"),
        succeeds=True,
    )
    shares = list(result.json["missing"].values())
    assert shares == pytest.approx([n / VOLUME[0] for n in range(8)])


# ---- grids


def test_resampling_loses_nothing_by_default(anamorph, volumes, tmp_path):
    save_nifti(volumes / "sub-00.nii.gz", blobs(1, (6, 6, 7))[0], rotated_affine())
    model = tmp_path / "m.safetensors"
    anamorph("fit", volumes, "--resample", "-o", model, *QUICK, succeeds=True)
    assert anamorph("info", model, "--json", succeeds=True).json["grid"] == list(VOLUME)
    anamorph(
        "fit", volumes, "--reference", volumes / "sub-00.nii.gz", "-o", model, *QUICK, "--force",
        succeeds=True,
    )  # fmt: skip
    assert anamorph("info", model, "--json", succeeds=True).json["grid"] == [6, 6, 7]


def test_pictures_are_no_reference(anamorph, volumes, pictures, tmp_path):
    reference = pictures / "face-1.png"
    result = anamorph(
        "fit", volumes, "--reference", reference, "-o", tmp_path / "m.safetensors", *QUICK
    )
    assert "must be a volume" in result.error


@pytest.mark.parametrize("kind", ["volumes", "labels"])
def test_reconstructions_come_back_on_the_grid_of_their_input(
    anamorph, volume_model, label_model, tmp_path, kind
):
    image = blobs(1, (7, 6, 7))[0]
    model = volume_model
    if kind == "labels":
        image, model = np.digitize(image, [0.3, 0.7]).astype(np.uint8), label_model
    path = save_nifti(tmp_path / "other.nii.gz", image, moved(0.5))
    options = ("--resample", "-o", tmp_path / "r", "--force")
    anamorph("reconstruct", model, path, *options, "--on-input-grid", succeeds=True)
    volume = nib.load(tmp_path / "r" / "other_reconstruction.nii.gz")
    assert volume.shape == (7, 6, 7)
    assert np.allclose(volume.affine, moved(0.5), atol=1e-5)
    onto_model = tmp_path / "r" / "other_reconstruction.nii.gz"
    anamorph("reconstruct", model, path, *options, succeeds=True)
    assert nib.load(onto_model).shape == VOLUME


def test_reconstructions_are_as_bright_as_their_input(anamorph, tmp_path):
    images = 0.2 + blobs(6, (8, 7, 6))
    gains = 100 * 2.0 ** np.arange(6)
    for n, image in enumerate(images):
        save_nifti(tmp_path / f"{n}.nii.gz", (gains[n] * image).astype(np.float32), moved(0))
    scans, model = sorted(tmp_path.glob("*.nii.gz")), tmp_path / "m.safetensors"
    options = ("--scale", "robust", "--intensity", "per image")
    anamorph("fit", *scans, *options, "-o", model, *QUICK, succeeds=True)
    anamorph("reconstruct", model, *scans, "-o", tmp_path / "r", succeeds=True)
    for n, image in enumerate(images):
        made = nib.load(tmp_path / "r" / f"{n}_reconstruction.nii.gz").get_fdata()
        assert made.mean() == pytest.approx(gains[n] * image.mean(), rel=0.05)


def test_a_table_of_latents_has_no_grids(anamorph, volumes, volume_model, tmp_path):
    table = tmp_path / "z.tsv"
    anamorph("encode", volume_model, volumes, "-o", table, succeeds=True)
    result = anamorph(
        "reconstruct", volume_model, "--latents", table, "--on-input-grid", "-o", tmp_path / "r"
    )
    assert result.exit_code == 2
    assert "needs images" in result.stderr


# ---- settings


def test_a_preset_with_more_latents_than_images_says_what_to_type(anamorph, label_maps, tmp_path):
    result = anamorph(
        "fit", label_maps, "--labels", "--preset", "brains3d", "-o", tmp_path / "m.safetensors"
    )
    assert (
        "30 latents for appearance and 70 for shape, and 10 images allow at most 9" in result.error
    )
    assert "-k A,S (appearance, shape), e.g. -k 3,6" in result.error
    result = anamorph("fit", label_maps, "--labels", "--preset", "brains2d", "-o", tmp_path / "m")
    assert "-k 4" in result.error


def test_scaling_is_a_setting_of_the_fit(anamorph, volumes, tmp_path):
    for n, path in enumerate(sorted(volumes.iterdir())[:3]):
        image = np.asarray(nib.load(path).dataobj)
        save_nifti(path, image * 10.0 ** (n + 2), rotated_affine())
    model = tmp_path / "m.safetensors"
    result = anamorph("fit", volumes, "-o", model, *QUICK)
    assert "most images hold 0 to 1, but" in result.error
    assert "; --scale robust divides" in result.error
    result = anamorph("fit", volumes, "-o", model, *QUICK, "--scale", "robust", succeeds=True)
    assert "Understood: each image is divided by its own typical intensity" in result.stdout
    result = anamorph("fit", volumes, "-o", model, *QUICK, "--force", "--scale", "twice")
    assert (
        "--scale must be one of none, robust, zscore, match, or a positive number" in result.error
    )


# ---- check


def test_check_shows_what_files_hold(anamorph, volumes):
    odd = (900 * blobs(1, (8, 6, 8))[0]).astype(np.int16)
    odd[0] = 0
    save_nifti(volumes / "sub-11.nii.gz", odd, FAR)
    (volumes / "notes.docx").write_text("x")
    (volumes / "broken.nii.gz").write_bytes(b"nothing")
    result = anamorph("check", volumes, "--json", "--missing-value", "0")
    assert result.exit_code == 1
    assert "error: " in result.stderr
    found = result.json
    (problem,) = found["problems"]
    assert "broken.nii.gz" in problem
    *_, last = found["files"]
    assert last["shape"] == [8, 6, 8]
    assert last["stored"] == "int16"
    assert last["highest"] > 500
    assert last["overlap"] == 0
    assert last["units"] in ("mm", "unknown")
    assert last["missing"] == pytest.approx((odd == 0).mean())
    assert last["centre"][0] > 390
    assert found["files"][0]["overlap"] == pytest.approx(0.9)  # nine of ten others
    text = "\n".join(found["remarks"])
    for remark in ("on another grid", "several types", "most images hold 0 to 1", "overlap little"):
        assert remark in text
    assert "notes.docx" in result.stderr


def test_check_tells_labels_from_intensities(anamorph, label_maps, pictures, tmp_path):
    found = anamorph("check", label_maps, "--json", succeeds=True).json
    assert {file["looks_like"] for file in found["files"]} == {"labels"}
    assert "fit them with --labels" in found["remarks"][0]
    found = anamorph("check", pictures, "--json", succeeds=True).json
    assert {file["looks_like"] for file in found["files"]} == {"colours"}
    assert not found["remarks"]
    mask = save_array(tmp_path / "mask.npy", blobs(1, (9, 9))[0] > 0.5)
    grey = save_picture(tmp_path / "grey.png", (255 * blobs(1, (9, 9))[0]).astype(np.uint8))
    full = 255 * (blobs(1, (9, 9))[0] > 0.5).astype(np.uint8)
    paths = (grey, mask, save_picture(tmp_path / "white.png", full))
    found = anamorph("check", *paths, "--json", succeeds=True).json
    assert [file["looks_like"] for file in found["files"]] == ["intensities", "mask", "mask"]
    full = save_array(tmp_path / "full.npy", full.astype(np.float32))
    found = anamorph("check", full, "--json", succeeds=True).json
    assert found["files"][0]["looks_like"] == "mask"


def test_check_prints_a_table(anamorph, volumes):
    result = anamorph("check", volumes, succeeds=True)
    lines = [line.split() for line in result.stdout.splitlines()]
    (row,) = [line for line in lines if line and line[0] == "sub-03.nii.gz"]
    assert row[1:6] == ["8", "x", "6", "x", "7"]
    assert "10 files can be read, 0 cannot; nothing is odd about them together" in result.stdout


def test_a_fit_says_at_most_five_things(anamorph, tmp_path):
    images = blobs(8, (10, 10, 10)) + 0.2
    images[0] *= 30
    images[1, :7] = np.nan
    images[2] = 0.001
    images[2, :2, :2, :2] = 0.4
    for n, image in enumerate(images):
        volume = nib.Nifti1Image(image.astype(np.float32), None)
        volume.set_sform(None, 0)
        volume.set_qform(None, 0)
        nib.save(volume, tmp_path / f"{n}.nii.gz")
    (tmp_path / "a.txt").write_text("x")
    result = anamorph("fit", tmp_path, "-o", tmp_path / "m.safetensors", *QUICK, succeeds=True)
    before = result.stdout.partition("Iteration 1")[0].splitlines()
    said = [line for line in before if not line.startswith(("Reading", "Starting", "Understood"))]
    assert 4 <= len(said) <= 5, said
    for words in (
        "skipped",
        "differ from most others",
        "guessed",
        "mostly missing",
        "centre of mass",
    ):
        assert any(words in line for line in said), words


def test_check_is_json_to_the_end(anamorph, tmp_path):
    (tmp_path / "a.nii").write_bytes(b"x" * 400)
    result = anamorph("check", tmp_path, "--json")
    assert json.loads(result.stdout)["files"] == []
