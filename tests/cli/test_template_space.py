"""Commands that bring images and points into the template, and warps out to other tools."""

import nibabel as nib
import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.storage.meshes import read_mesh


@pytest.fixture
def latents(anamorph, volume_model, volumes, tmp_path):
    anamorph("encode", volume_model, volumes, "-o", tmp_path / "z.tsv", succeeds=True)
    return tmp_path / "z.tsv"


def test_warp_writes_images_in_the_template(anamorph, volume_model, volumes, tmp_path):
    model, files = ShapeAppearanceModel.load(volume_model), sorted(volumes.iterdir())
    anamorph("warp", volume_model, volumes, "-o", tmp_path / "out", succeeds=True)
    written = sorted((tmp_path / "out").iterdir())
    assert len(written) == len(files)
    inner = (slice(None), *(slice(model.origin_.pad, -model.origin_.pad),) * 3)
    expected = model.to_template([str(path) for path in files])[inner]
    for path, source, image in zip(written, files, expected, strict=True):
        assert path.name == source.name.replace(".nii", "_template.nii")
        assert np.allclose(nib.load(path).affine, nib.load(source).affine, atol=1e-4)
        assert np.allclose(nib.load(path).get_fdata(), image, atol=1e-4, equal_nan=True)


def test_labels_go_there_and_back(anamorph, volume_model, volumes, latents, tmp_path):
    folder = tmp_path / "labels"
    folder.mkdir()
    for path in volumes.iterdir():
        image = nib.load(path)
        labels = np.where(image.get_fdata() > 0.5, 9, 0).astype(np.int16)
        nib.save(nib.Nifti1Image(labels, image.affine), folder / path.name)
    base = ("warp", volume_model, "--latents", latents, "--labels")
    there, back = tmp_path / "there", tmp_path / "back"
    anamorph(*base, "--apply", folder, "-o", there, succeeds=True)
    anamorph(*base, "--from-template", "--apply", there, "-o", back, succeeds=True)
    for path in folder.iterdir():
        returned = nib.load(back / path.name.replace(".nii", "_from-template.nii"))
        assert (returned.get_fdata() == nib.load(path).get_fdata()).mean() > 0.9
        assert set(np.unique(returned.get_fdata())) <= {0, 9}
    atlas = next(there.iterdir())
    anamorph(*base, "--from-template", "--apply", atlas, "-o", tmp_path / "one", succeeds=True)
    assert len(list((tmp_path / "one").iterdir())) == len(list(folder.iterdir()))


def test_an_atlas_comes_on_the_grid_of_each_image(anamorph, volume_model, volumes, tmp_path):
    atlas = sorted(volumes.iterdir())[0]
    finer = tmp_path / "finer.nii.gz"
    image = nib.load(atlas)
    affine = image.affine @ np.diag([0.5, 0.5, 0.5, 1])
    nib.save(nib.Nifti1Image(np.kron(image.get_fdata(), np.ones((2, 2, 2))), affine), finer)
    options = ("--from-template", "--apply", atlas, "--on-input-grid", "--resample")
    anamorph("warp", volume_model, finer, *options, "-o", tmp_path / "out", succeeds=True)
    (path,) = (tmp_path / "out").iterdir()
    written = nib.load(path)
    assert written.shape == (16, 12, 14)
    assert np.allclose(written.affine, affine, atol=1e-4)
    result = anamorph("warp", volume_model, volumes, "--on-input-grid", "-o", tmp_path / "no")
    assert "from the template" in result.error


def test_landmarks_go_there_and_back(anamorph, volume_model, volumes, latents, tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    files = sorted(volumes.iterdir())
    middle = nib.load(files[0]).affine @ [3.5, 2.5, 3.0, 1]
    for path in files:
        text = "name,x,y,z\nmiddle,{},{},{}\n".format(*middle)
        (folder / path.name.replace(".nii.gz", ".csv")).write_text(text)
    base = ("warp", volume_model, "--latents", latents)
    anamorph(*base, "--apply", folder / "*.csv", "-o", tmp_path / "there", succeeds=True)
    there = sorted((tmp_path / "there").iterdir())
    moved = np.array([read_mesh(path).points[0] for path in there])
    assert np.ptp(moved, axis=0).max() > 0.01
    options = ("--from-template", "--apply", tmp_path / "there" / "*.csv")
    anamorph(*base, *options, "-o", tmp_path / "back", succeeds=True)
    for path in (tmp_path / "back").iterdir():
        mark = read_mesh(path)
        assert np.allclose(mark.points, middle[:3], atol=1e-3)
        assert mark.columns == {"name": ["middle"]}


def test_files_belong_to_images_of_their_name(anamorph, volume_model, volumes, latents, tmp_path):
    """Whatever the order of rows: by their order, marks would go through warps of others."""
    folder = tmp_path / "marks"
    folder.mkdir()
    for path in volumes.iterdir():
        middle = nib.load(path).affine @ [3.5, 2.5, 3.0, 1]
        text = "x,y,z\n{},{},{}\n".format(*middle)
        (folder / path.name.replace(".nii.gz", ".csv")).write_text(text)
    header, *rows = latents.read_text().splitlines()
    turned = tmp_path / "turned.tsv"
    turned.write_text("\n".join([header, *rows[::-1]]) + "\n")
    for table, name in ((latents, "one"), (turned, "other")):
        options = ("--latents", table, "--apply", folder / "*.csv", "-o", tmp_path / name)
        anamorph("warp", volume_model, *options, succeeds=True)
    for path in (tmp_path / "one").iterdir():
        assert path.read_text() == (tmp_path / "other" / path.name).read_text()
    marks = sorted(folder.iterdir())
    marks[0].rename(folder / "nobody.csv")
    options = ("--latents", latents, "--apply", folder / "*.csv", "-o", tmp_path / "third")
    assert f"none for {marks[0].stem}" in anamorph("warp", volume_model, *options).error


def test_jacobians_are_maps(anamorph, volume_model, latents, tmp_path):
    model = ShapeAppearanceModel.load(volume_model)
    base = ("jacobians", volume_model, "--latents", latents)
    anamorph(*base, "-o", tmp_path / "plain", succeeds=True)
    anamorph(*base, "--log", "--fwhm", "4", "-o", tmp_path / "log", succeeds=True)
    plain, logs = (sorted((tmp_path / name).iterdir()) for name in ("plain", "log"))
    assert plain[0].name.endswith("_jacobian.nii.gz")
    assert logs[0].name.endswith("_log-jacobian.nii.gz")
    image = nib.load(plain[0])
    grid = model.origin_.inner_grid(model.image_format_.space)
    assert np.allclose(image.affine, grid.affine, atol=1e-4)
    assert image.get_fdata().min() > 0
    assert nib.load(logs[0]).get_fdata().std() < np.log(image.get_fdata()).std()


@pytest.mark.parametrize("kind", ["itk", "spm", "fsl"])
def test_warps_are_written_both_ways(anamorph, volume_model, volumes, latents, tmp_path, kind):
    base = ("warps", volume_model, "--latents", latents, "--format", kind)
    anamorph(*base, "-o", tmp_path / "both", succeeds=True)
    names = {path.name for path in (tmp_path / "both").iterdir()}
    first = sorted(volumes.iterdir())[0].name.removesuffix(".nii.gz")
    if kind == "spm":
        assert {f"y_{first}.nii", f"iy_{first}.nii"} <= names
    else:
        assert {f"{first}_to-template.nii.gz", f"{first}_from-template.nii.gz"} <= names
    assert len(names) == 2 * len(list(volumes.iterdir()))
    anamorph(*base, "--direction", "to", "-o", tmp_path / "to", succeeds=True)
    one_way = {path.name for path in (tmp_path / "to").iterdir()}
    assert one_way < names
    assert len(one_way) == len(names) / 2


def test_pictures_come_back_as_pictures(anamorph, picture_model, pictures, tmp_path):
    anamorph("warp", picture_model, pictures, "-o", tmp_path / "out", succeeds=True)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".png"}
    anamorph("jacobians", picture_model, pictures, "-o", tmp_path / "maps", succeeds=True)
    assert {path.suffix for path in (tmp_path / "maps").iterdir()} == {".npy"}


def test_surfaces_of_label_models(anamorph, label_model, tmp_path):
    model = ShapeAppearanceModel.load(label_model)
    if len(model.image_format_.space) == 2:
        result = anamorph("surface", label_model, "-o", tmp_path)
        assert "surfaces are of volumes" in result.error
        return
    pytest.importorskip("skimage")
    result = anamorph("surface", label_model, "-o", tmp_path, "--json", succeeds=True)
    mesh = read_mesh(tmp_path / "mean_surface.gii")
    assert mesh.is_closed
    assert np.isclose(result.json["volumes"]["mean"], mesh.volume, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("volume", (), "level must be given: images of a gaussian model have no 0.5"),
        ("volume", ("--label", 1), "label is of models of classes, and this one is gaussian"),
        ("label", ("--label", 7), "label must be one of [0, 1, 2], got 7"),
        ("label", ("--level", 5), "level is of models of intensities: give a label"),
        ("picture", (), "surfaces are of volumes"),
    ],
)
def test_surfaces_that_a_model_does_not_have_are_one_line(
    anamorph, request, tmp_path, kind, options, message
):
    model = request.getfixturevalue(f"{kind}_model")
    result = anamorph("surface", model, *options, "-o", tmp_path / "meshes")
    assert message in result.error
    assert not (tmp_path / "meshes").exists()


def fail(*_, **__):
    pytest.fail("the work began")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("volume", ("--nearest", "--modulate"), "leave --nearest out"),
        ("volume", ("--apply", "{labels}", "--labels", "--modulate"), "labels do not have"),
        ("label", ("--modulate",), "labels do not have"),
        ("volume", ("--apply", "nosuch"), "--apply nosuch does not exist"),
    ],
)
def test_wrong_warps_are_refused_before_the_work_begins(
    anamorph, request, monkeypatch, label_maps, tmp_path, kind, options, message
):
    model = request.getfixturevalue(f"{kind}_model")
    images = label_maps if kind == "label" else request.getfixturevalue("volumes")
    options = [option.format(labels=label_maps) for option in options]
    monkeypatch.setattr(ShapeAppearanceModel, "encode", fail)
    result = anamorph("warp", model, images, *options, "-o", tmp_path / "out")
    assert message in result.error
    assert not (tmp_path / "out").exists()


def test_amounts_of_labels_are_probabilities(anamorph, label_model, label_maps, tmp_path):
    out = tmp_path / "out"
    arguments = ("warp", label_model, label_maps, "--modulate", "--probabilities", "-o", out)
    anamorph(*arguments, succeeds=True)
    assert len(list(out.iterdir())) == len(list(label_maps.iterdir()))


def test_files_of_other_names_are_taken_in_their_order_aloud(
    anamorph, volume_model, volumes, latents, tmp_path
):
    base = ("warp", volume_model, "--latents", latents, "--apply", volumes)
    same = anamorph(*base, "-o", tmp_path / "same", succeeds=True)
    assert "order" not in same.stdout
    for n, path in enumerate(sorted(volumes.iterdir())):
        path.rename(volumes / f"a{n}.nii.gz")
    other = anamorph(*base, "-o", tmp_path / "other", succeeds=True)
    assert (
        f"no file of --apply {volumes} has the name of an image: they are taken in their order "
        "(a0.nii.gz for sub-01, a1.nii.gz for sub-02, a2.nii.gz for sub-03, ...)"
    ) in other.stdout


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_labels_that_are_interpolated_are_told(
    anamorph, volume_model, volumes, label_maps, latents, tmp_path, dtype
):
    for path in label_maps.iterdir():
        image = nib.load(path)
        labels = np.asarray(image.dataobj).astype(dtype)
        nib.save(nib.Nifti1Image(labels, image.affine), path)
    base = ("warp", volume_model, "--latents", latents, "--apply")
    said = anamorph(*base, label_maps, "-o", tmp_path / "fractions", succeeds=True).stdout
    assert f"{label_maps / 'sub-01.nii.gz'} holds only the integers 0, 1, 2, which look" in said
    for name, option in (("whole", "--labels"), ("near", "--nearest")):
        said = anamorph(*base, label_maps, option, "-o", tmp_path / name, succeeds=True).stdout
        assert "look like labels" not in said
    said = anamorph(*base, volumes, "-o", tmp_path / "images", succeeds=True).stdout
    assert "look like labels" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("warp", "--from-template"), "--apply"),
        (("warp",), "no images"),
        (("warp", "--apply", "{z}x", "--from-template", "--fwhm", "2"), "for the way to"),
        (("warps", "--format", "matlab"), "--format must be"),
        (("warps", "--direction", "up"), "--direction must be"),
    ],
)
def test_wrong_arguments_are_told(anamorph, volume_model, latents, tmp_path, arguments, message):
    command, *options = arguments
    options = [option.format(z=latents) for option in options]
    out = tmp_path / "out"
    result = anamorph(command, volume_model, "--latents", latents, *options, "-o", out)
    assert message in result.error
    assert not out.exists() or not any(out.iterdir())


def test_a_file_is_needed_for_each_image(anamorph, volume_model, volumes, latents, tmp_path):
    options = ("--latents", latents, "--apply", next(volumes.iterdir()))
    result = anamorph("warp", volume_model, *options, "-o", tmp_path / "out")
    assert "1 file" in result.error
    assert "10 images" in result.error
