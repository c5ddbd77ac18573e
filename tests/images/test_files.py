"""Collections of files: the contract of arrays, label and tissue maps, grids, bad files."""

import os

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.fitting.cohort import Cohort
from anamorph.images.arrays import ArrayImages
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.grid import Grid
from anamorph.images.readers import match_tissues
from anamorph.model.settings import checked_settings
from tests.conftest import one_line
from tests.images.filemaking import (
    EVERYTHING,
    noise,
    rotated_affine,
    save_array,
    save_nifti,
    save_picture,
)

# ---- margins for alignment


def textured(n, space=(20, 17)):
    """Return crops of something that goes on beyond them, (n, *space)."""
    draws = np.random.default_rng(1)
    whole = gaussian_filter(draws.standard_normal((60, 60)), 2)
    corners = draws.integers(18, 22, (n, 2))
    crops = [whole[i : i + space[0], j : j + space[1]] for i, j in corners]
    return (5 + 10 * np.stack(crops)).astype(np.float32)


def test_crops_that_are_aligned_get_a_margin(tmp_path):
    paths = [save_array(tmp_path / f"{n}.npy", image) for n, image in enumerate(textured(6))]
    arguments = {"n_components": 1, "n_iter": 1, "random_state": 0}
    aligned = ShapeAppearanceModel(align="translation", **arguments).fit(paths)
    assert aligned.origin_.pad == 2
    assert aligned.mean_.shape == (1, 24, 21)
    assert ShapeAppearanceModel(**arguments).fit(paths).mean_.shape == (1, 20, 17)
    opened = FileImages(paths, pad="auto")
    assert "a margin of 2 missing voxels" in opened.understood
    assert "margin" not in (FileImages(paths, pad=2).understood or "")
    given = ShapeAppearanceModel(align="translation", **arguments).fit(FileImages(paths))
    assert given.mean_.shape == (1, 20, 17)


def test_images_with_a_background_need_no_margin(tmp_path):
    images = np.pad(textured(4), [(0, 0), (8, 8), (8, 8)])
    paths = [save_array(tmp_path / f"{n}.npy", image) for n, image in enumerate(images)]
    assert FileImages(paths, pad="auto").pad == 0
    labels = np.pad(np.ones((10, 9), np.int16), 5)
    paths = [save_nifti(tmp_path / f"{n}.nii", np.roll(labels, n, 0)) for n in range(2)]
    assert FileImages(paths, "categorical", pad="auto").pad == 0


# ---- the contract


def test_some_of_a_collection_are_a_collection(tmp_path):
    stack = noise(4, 3, 5)
    paths = [save_array(tmp_path / f"{n}.npy", image) for n, image in enumerate(stack)]
    for collection in (
        FileImages(paths),
        ArrayImages(stack, "gaussian"),
        ArrayImages(list(stack), "gaussian"),
    ):
        some = collection.subset([3, 1])
        assert len(some) == 2
        np.testing.assert_array_equal(some.read(EVERYTHING), collection.read(EVERYTHING)[[3, 1]])
        assert len(collection) == 4
    assert FileImages(paths).subset([3, 1]).identities == ["3", "1"]


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("axis", [None, 1, -1])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64, bool, np.int64])
def test_files_are_read_as_arrays_are(tmp_path, suffix, axis, dtype):
    is_small = dtype in (bool, np.int64)
    stack = noise(4, 3, 5, 3) * 200
    stack = (stack > 100).astype(dtype) if is_small else stack.astype(dtype)
    paths = [save_array(tmp_path / f"{n}{suffix}", image) for n, image in enumerate(stack)]
    files, arrays = FileImages(paths, "gaussian", axis), ArrayImages(stack, "gaussian", axis)
    files.check(for_fit=True)
    assert files.format == arrays.format
    assert len(files) == 4
    for part in (EVERYTHING, slice(1, 3), slice(2, 2)):
        assert np.array_equal(files.read(part), arrays.read(part))
    assert files.read(EVERYTHING).dtype == np.float32


def test_identities_are_stems_or_paths(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        save_array(tmp_path / folder / f"a{folder}.npy", noise(3, 4))
        save_array(tmp_path / folder / "b.npy", noise(3, 4))
    assert FileImages([tmp_path / "x/ax.npy", tmp_path / "y/ay.npy"]).identities == ["ax", "ay"]
    assert FileImages([tmp_path / "x/b.npy", tmp_path / "y/b.npy"]).identities == ["x/b", "y/b"]
    with pytest.raises(ImageError, match="one image"):
        FileImages([tmp_path / "x/b.npy", tmp_path / "x/b.npy"])


def test_a_margin_is_missing_and_moves_nothing(tmp_path):
    voxels, affine = noise(5, 6, 7), rotated_affine()
    images = FileImages([save_nifti(tmp_path / "a.nii", voxels, affine)], pad=2)
    image = images.read(EVERYTHING)[0, 0]
    assert images.format.space == image.shape == (9, 10, 11)
    assert np.array_equal(image[2:-2, 2:-2, 2:-2], voxels)
    assert np.isnan(image).sum() == image.size - voxels.size
    assert np.allclose(images.affine @ [3, 4, 5, 1], affine @ [1, 2, 3, 1], atol=1e-4)
    assert np.allclose(images.voxel_size, (1, 1.5, 2))
    with pytest.raises(ValueError, match="pad must be an integer >= 0 or 'auto', got -1"):
        FileImages([tmp_path / "a.nii"], pad=-1)


# ---- classes


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_label_maps_become_classes(tmp_path, dtype):
    labels = np.random.default_rng(0).integers(0, 4, (3, 5, 4, 6)).astype(dtype)
    paths = [save_nifti(tmp_path / f"{n}.nii.gz", image) for n, image in enumerate(labels)]
    files = FileImages(paths, "categorical")
    files.check(for_fit=True)
    assert files.format == ArrayImages(labels.astype(int), "categorical").format
    assert np.array_equal(files.read(EVERYTHING).argmax(axis=1), labels)
    assert FileImages(paths, "categorical", n_classes=6).format.n_channels == 6
    with pytest.raises(ImageError, match=r"0\.nii\.gz has label 3, .* knows 0, 1, 2"):
        FileImages(paths, "categorical", n_classes=3)


def test_missing_labels_stay_missing(tmp_path):
    labels = np.ones((4, 5, 6), np.float32)
    labels[0] = np.nan
    labels[1] = 0
    path = save_nifti(tmp_path / "a.nii", labels)
    image = FileImages([path], "categorical", pad=1).read(EVERYTHING)[0]
    assert np.isnan(image[:, :2]).all()
    assert np.array_equal(image[1, 2:-1, 1:-1, 1:-1], labels[1:])


@pytest.mark.parametrize(
    ("value", "message"), [(0.5, "fractions"), (-1, "-1 to"), (3e9, "to 3e\\+09")]
)
def test_label_maps_hold_labels(tmp_path, value, message):
    labels = np.zeros((4, 5), np.float32)
    labels[2, 2] = value
    with pytest.raises(ImageError, match=rf"a\.nii .*{message}"):
        FileImages([save_nifti(tmp_path / "a.nii", labels)], "categorical")


def tissues(tmp_path, n_images=3, dtype=np.uint8):
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), (n_images, 5, 6, 4))
    for n, image in enumerate(probabilities):
        for tissue in (0, 1):
            voxels = image[..., tissue].astype(np.float32)
            if dtype is np.uint8:
                voxels = np.round(255 * voxels).astype(np.uint8)
            save_nifti(tmp_path / f"rc{tissue + 1}sub-{n:02}.nii", voxels, rotated_affine())
    return probabilities


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_tissue_maps_get_a_background(tmp_path, dtype):
    probabilities = tissues(tmp_path, dtype=dtype)
    classes = [sorted(tmp_path.glob(pattern)) for pattern in ("rc1*.nii", "rc2*.nii")]
    images = FileImages(match_tissues(*classes), "categorical", pad=1)
    images.check(for_fit=True)
    read = images.format.to_user(images.read(EVERYTHING))[:, 1:-1, 1:-1, 1:-1]
    assert images.format.n_channels == 3
    assert not images.format.holds_labels
    assert np.abs(read - probabilities).max() < (0.004 if dtype is np.uint8 else 1e-6)
    assert np.allclose(read.sum(axis=-1), 1, atol=1e-6)
    assert images.identities[0] == "rc1sub-00"


def test_tissue_maps_belong_together(tmp_path):
    ones, twos = (["a/c1x.nii", "a/c1y.nii", "a/c1z.nii"], ["a/c2x.nii", "a/c2y.nii", "a/c2z.nii"])
    assert [len(image) for image in match_tissues(ones, twos)] == [2, 2, 2]
    with pytest.raises(ImageError, match="got 3, 2 files"):
        match_tissues(ones, twos[1:])
    with pytest.raises(ImageError, match=r"c1y\.nii and a/c2z\.nii do not look like"):
        match_tissues(ones[:2], twos[::2])
    with pytest.raises(ImageError, match="empty"):
        match_tissues(ones, [])


def test_tissue_maps_must_not_exceed_one(tmp_path):
    paths = [save_nifti(tmp_path / f"c{n}.nii", 0.4 + 0.4 * noise(5, 6, 4)) for n in (1, 2)]
    with pytest.raises(ImageError, match=r"c1\.nii and .*c2\.nii: .* sum to 1\."):
        FileImages([paths], "categorical").check(for_fit=True)
    with pytest.raises(ImageError, match="tissue maps, for likelihood='categorical'"):
        FileImages([paths], "gaussian")


def test_probabilities_along_an_axis_are_normalised(tmp_path):
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), (5, 6, 4)).astype(np.float32)
    images = FileImages([save_nifti(tmp_path / "a.nii", 0.97 * probabilities)], "categorical", -1)
    images.check(for_fit=True)
    assert np.allclose(images.read(EVERYTHING).sum(axis=1), 1, atol=1e-6)
    images = FileImages([save_nifti(tmp_path / "b.nii", 0.9 * probabilities)], "categorical", -1)
    with pytest.raises(ImageError, match=r"b\.nii: .* sum to 0\.9 at a voxel"):
        images.check(for_fit=True)


# ---- grids


@pytest.mark.parametrize(
    ("shape", "affine", "difference"),
    [
        ((5, 6, 8), rotated_affine(), "shape, 5 x 6 x 7 and 5 x 6 x 8"),
        (
            (5, 6, 7),
            rotated_affine(size=(1, 1.5, 2.1)),
            "voxel size, 1 x 1.5 x 2 and 1 x 1.5 x 2.1",
        ),
        ((5, 6, 7), rotated_affine(angle=0.4), "affine, voxels being up to"),
        ((5, 6, 7), rotated_affine(origin=(0, 0, 0)), "affine, voxels being up to 22.9 mm apart"),
    ],
)
def test_grids_that_differ_are_named(tmp_path, shape, affine, difference):
    paths = [
        save_nifti(tmp_path / "a.nii", noise(5, 6, 7), rotated_affine()),
        save_nifti(tmp_path / "b.nii", noise(*shape), affine),
    ]
    with pytest.raises(ImageError) as error:
        FileImages(paths, resample=False)
    text = one_line(error)
    assert f"{paths[0]} and {paths[1]} differ in {difference}" in text
    assert "--resample" in text
    onto_first = Grid((5, 6, 7), rotated_affine())
    FileImages(paths, resample=True, onto=onto_first).read(EVERYTHING)


def test_rounding_of_affines_is_no_difference(tmp_path):
    nearly = rotated_affine() + 1e-5
    nearly[3] = [0, 0, 0, 1]
    paths = [
        save_nifti(tmp_path / "a.nii", noise(5, 6, 7), rotated_affine()),
        save_nifti(tmp_path / "b.nii", noise(5, 6, 7), nearly),
    ]
    assert len(FileImages(paths)) == 2


def test_new_images_are_brought_onto_the_grid_of_a_model(tmp_path):
    path = save_nifti(tmp_path / "a.nii", noise(5, 6, 7), rotated_affine())
    model_grid = FileImages([path], pad=2).grid
    images = FileImages([path], onto=model_grid, resample=True)
    expected = FileImages([path], pad=2).read(EVERYTHING)
    assert np.allclose(images.read(EVERYTHING), expected, atol=1e-5, equal_nan=True)
    small, own = Grid((3, 3, 3), rotated_affine()), FileImages([path]).format
    with pytest.raises(ImageError, match=r"the given grid and .* differ in shape"):
        FileImages([path], onto=small, resample=False)
    with pytest.raises(ImageError, match=r"the model's grid and .* differ in shape"):
        FileImages([path], onto=small, like=own, resample=False)


def test_arrays_and_volumes_do_not_mix(tmp_path):
    paths = [
        save_nifti(tmp_path / "a.nii", noise(5, 6, 7)),
        save_array(tmp_path / "b.npy", noise(5, 6, 7)),
    ]
    with pytest.raises(ImageError, match="affine, which only one of them has"):
        FileImages(paths, resample=True)


def test_scaled_and_other_numbers_do_not_mix(tmp_path):
    paths = [
        save_array(tmp_path / "a.npy", noise(5, 6)),
        save_array(tmp_path / "b.npy", (200 * noise(5, 6)).astype(np.uint8)),
    ]
    with pytest.raises(
        ImageError,
        match=r"b\.npy holds integers that stand for 0 to 1 and .*a\.npy .*--scale robust",
    ):
        FileImages(paths)
    FileImages(paths, scale="robust").check(for_fit=True)


# ---- bad files


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".png", ".jpg", ".tif", ".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"x", b"hello, I am no image" * 50, None])
def test_what_is_no_image_is_named(tmp_path, suffix, content, capfd):
    path = tmp_path / f"a{suffix}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError) as error:
        FileImages([path])
    assert one_line(error).startswith(str(path))
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(ImageError, match="is a folder"):
        FileImages([path])
    assert capfd.readouterr() == ("", "")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(ImageError, match=r"a\.txt must be one of \.nii, \.nii\.gz, "):
        FileImages([tmp_path / "a.txt"])
    with pytest.raises(ImageError, match="list of files"):
        FileImages(tmp_path / "a.txt")
    with pytest.raises(ImageError, match="empty"):
        FileImages([])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "a.nii")
    with pytest.raises(ImageError, match="not a plain file"):
        FileImages([tmp_path / "a.nii"])


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX")
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".png", ".npy", ".npz"])
def test_files_that_may_not_be_read_are_named(tmp_path, suffix):
    path = saved(tmp_path / f"a{suffix}")
    path.chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        tmp_path.chmod(0o755)
        os.seteuid(65534)
    try:
        with pytest.raises(ImageError, match=rf"a\{suffix} may not be read"):
            FileImages([path])
    finally:
        if was_root:
            os.seteuid(0)


def saved(path, seed=0):
    if path.suffix == ".png":
        return save_picture(path, (255 * noise(5, 6, seed=seed)).astype(np.uint8))
    if path.suffix in (".npy", ".npz"):
        return save_array(path, noise(5, 6, seed=seed))
    return save_nifti(path, noise(5, 6, seed=seed))


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".png", ".npy", ".npz"])
def test_a_file_that_vanishes_or_changes_is_named(tmp_path, suffix):
    paths = [saved(tmp_path / f"{n}{suffix}", seed=n) for n in range(3)]
    images = FileImages(paths)
    expected = images.read(slice(0, 1))
    paths[1].unlink()
    with pytest.raises(ImageError, match=r"1\S* does not exist"):
        images.read(EVERYTHING)
    paths[2].write_bytes(paths[2].read_bytes() + b"x")
    with pytest.raises(ImageError, match=r"2\S* has changed since"):
        images.read(slice(2, 3))
    assert np.array_equal(images.read(slice(0, 1)), expected)


def test_no_file_is_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[print]]), allow_pickle=True)
    with pytest.raises(ImageError, match=r"a\.npy holds object"):
        FileImages([tmp_path / "a.npy"])


def test_a_file_with_several_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=noise(3, 4), y=noise(3, 4))
    with pytest.raises(ImageError, match=r"must hold one array, got 2 \(x, y\)"):
        FileImages([tmp_path / "a.npz"])


@pytest.mark.parametrize(
    ("value", "likelihood", "message"),
    [
        (np.inf, "gaussian", "infinity"),
        (2.0, "bernoulli", "values from 0 to 1"),
        ("nan", "gaussian", "no observed voxel"),
        ("constant", "gaussian", "constant"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".nii.gz"])
def test_values_that_cannot_be_used_are_named(tmp_path, value, likelihood, message, suffix):
    voxels = noise(5, 6)
    if value == "nan":
        voxels[:] = np.nan
    elif value == "constant":
        voxels[:] = 0.5
    else:
        voxels[2, 2] = value
    save = save_array if suffix == ".npy" else save_nifti
    paths = [save(tmp_path / f"a{suffix}", noise(5, 6)), save(tmp_path / f"b{suffix}", voxels)]
    images = FileImages(paths, likelihood, pad=1)
    with pytest.raises(ImageError, match=rf"b\{suffix} .*{message}"):
        images.check(for_fit=True)


def test_integers_of_unknown_range_are_refused(tmp_path):
    path = save_array(tmp_path / "a.npy", np.arange(30).reshape(5, 6))
    with pytest.raises(ImageError, match="range of other types says nothing"):
        FileImages([path]).check(for_fit=True)
    assert FileImages([path], "categorical").format.n_channels == 30


def test_a_cohort_sees_no_difference_between_files_and_arrays(tmp_path):
    stack = noise(4, 8, 6)
    paths = [save_nifti(tmp_path / f"{n}.nii.gz", image) for n, image in enumerate(stack)]
    model = ShapeAppearanceModel(1)
    sums = []
    for images in (FileImages(paths), ArrayImages(stack, "gaussian")):
        settings = checked_settings(model.get_params(), images.format, len(images))
        sums.append(Cohort(images, settings, range(4)).moments())
    for name, field in sums[0].fields.items():
        assert np.array_equal(field, sums[1][name])
