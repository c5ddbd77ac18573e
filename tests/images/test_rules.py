"""Rules for reading numbers: integers by what they hold, labels by a table, kept by a model."""

import numpy as np
import pytest
import scipy.sparse

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.format import BY_CONTENT, BY_TYPE, ImageFormat
from anamorph.storage.modelfile import read_model
from tests.cli.conftest import blobs
from tests.images.filemaking import EVERYTHING, noise, save_array, save_nifti, save_picture

# ---- integers


def grey(dtype, highest, *shape, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, highest + 1, shape)
    values.flat[0] = highest
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.int64])
def test_masks_of_zeros_and_ones_stand_for_themselves(dtype, tmp_path):
    """Of uint8 they became 0 and 0.004, so that no voxel was probable."""
    masks = grey(dtype, 1, 4, 5, 6)
    arrays = ArrayImages(masks, "bernoulli")
    paths = [save_array(tmp_path / f"{n}.npy", mask) for n, mask in enumerate(masks)]
    for images in (arrays, FileImages(paths, "bernoulli")):
        assert np.array_equal(images.read(EVERYTHING)[:, 0], masks)
        assert images.format.unit == 1


@pytest.mark.parametrize(
    ("dtype", "highest", "unit"),
    [
        (np.uint8, 255, 255),
        (np.uint8, 100, 255),  # a dark picture
        (np.uint16, 255, 255),  # a picture of 8 bits in 16
        (np.uint16, 4000, 4095),
        (np.uint16, 60000, 65535),
    ],
)
def test_integers_are_scaled_by_what_they_hold(dtype, highest, unit, tmp_path):
    raw = grey(dtype, highest, 4, 30, 30)
    arrays = ArrayImages(raw, "gaussian")
    paths = [save_picture(tmp_path / f"{n}.png", image) for n, image in enumerate(raw)]
    for images in (arrays, FileImages(paths)):
        assert images.format.unit == unit
        assert np.allclose(images.read(EVERYTHING)[:, 0], raw / unit, atol=1e-6)


@pytest.mark.parametrize("values", [(0, 1, 2), (0, 2), (0, 2, 41, 17)])
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_integers_that_look_like_labels_are_asked_about(values, likelihood, tmp_path):
    labels = np.random.default_rng(0).choice(values, (4, 6, 6)).astype(np.uint8)
    with pytest.raises(ImageError, match=r"look like labels: .*--labels.*--scale none"):
        ArrayImages(labels, likelihood)
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate(labels)]
    with pytest.raises(ImageError, match=r"0\.nii holds only the integers 0, .* look like labels"):
        FileImages(paths, likelihood)
    assert np.array_equal(
        ArrayImages(labels, "gaussian", scale="none").read(EVERYTHING)[:, 0], labels
    )
    assert ArrayImages(labels, "gaussian", scale=2).read(EVERYTHING).max() == max(values) / 2


def test_many_flat_labels_are_asked_about(tmp_path):
    """Segmentations by FreeSurfer have more labels than few, but they are flat."""
    labels = np.kron(np.arange(40).reshape(5, 8), np.ones((8, 10))).astype(np.int16)
    with pytest.raises(ImageError, match="40 different integers up to 39, which look like labels"):
        FileImages([save_nifti(tmp_path / "aseg.nii", labels)])


def test_floats_that_look_like_labels_are_remarked_on(tmp_path, caplog):
    labels = np.random.default_rng(0).choice([0.0, 2.0, 7.0], (4, 6, 6)).astype(np.float32)
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate(labels)]
    for images in (ArrayImages(labels, "gaussian"), FileImages(paths)):
        caplog.clear()
        images.check(for_fit=True)
        assert "images hold only 0, 2, 7" in caplog.text
        assert "--labels" in caplog.text
    caplog.clear()
    ArrayImages(labels + noise(4, 6, 6), "gaussian").check(for_fit=True)
    assert not caplog.records


@pytest.mark.parametrize(
    ("masks", "advice"),
    [
        (255 * grey(np.uint8, 1, 3, 8, 8), ""),
        (grey(bool, 1, 3, 8, 8), ""),
        (grey(np.float32, 1, 3, 8, 8), ""),
        (255 * grey(np.float32, 1, 3, 8, 8), " and scale=255 (--scale 255)"),
    ],
    ids=["uint8", "bool", "float32", "full float32"],
)
def test_masks_taken_for_intensities_are_remarked_on(masks, advice, tmp_path, caplog):
    paths = [save_array(tmp_path / f"{n}.npy", mask) for n, mask in enumerate(masks)]
    for images in (ArrayImages(masks, "gaussian"), FileImages(paths)):
        caplog.clear()
        images.check(for_fit=True)
        assert len(caplog.records) == 1
        expected = f"likelihood='bernoulli' (--likelihood bernoulli){advice} suits them better"
        assert expected in caplog.text
    caplog.clear()
    scale = 255 if advice else None
    ArrayImages(masks, "bernoulli", scale=scale).check(for_fit=True)
    mixed = masks.astype(np.float32)
    mixed[2] = mixed.max() * noise(8, 8)
    ArrayImages(mixed, "gaussian").check(for_fit=True)
    assert not caplog.records


def test_black_and_white_pictures_are_no_labels(tmp_path):
    raw = 255 * grey(np.uint8, 1, 3, 8, 8)
    assert ArrayImages(raw, "bernoulli").read(EVERYTHING).max() == 1


def test_what_was_understood_is_said(tmp_path):
    path = save_picture(tmp_path / "a.png", grey(np.uint16, 4000, 30, 30))
    assert FileImages([path]).understood == "uint16 values are divided by 4095"
    volume = save_nifti(tmp_path / "a.nii", grey(np.int16, 900, 9, 9, 9))
    assert FileImages([volume]).understood == "int16 values are taken as they are"
    labels = save_nifti(tmp_path / "b.nii", np.array([[0, 2], [7, 7]], np.int16))
    assert FileImages([labels], "categorical").understood == "labels 0, 2, 7 are 3 classes"
    assert FileImages([save_array(tmp_path / "f.npy", noise(4, 4))]).understood is None


# ---- a model keeps the rules


@pytest.fixture(scope="module")
def pictures():
    return (255 * blobs(6, (12, 10))).astype(np.uint8)


@pytest.fixture(scope="module")
def model(pictures):
    return ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(pictures)


def test_new_integers_are_read_by_the_rule_of_the_model(model, pictures, tmp_path):
    model.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.image_format_.unit == 255
    dark = pictures // 200  # alone, it would be a mask of 0 and 1
    images = loaded.checked_images(dark[:1])
    assert np.allclose(images.read(EVERYTHING)[:, 0], dark[:1] / 255)


def test_models_of_before_scale_by_type(model, pictures, tmp_path):
    """Their files say nothing about rules."""
    model.save(tmp_path / "model.safetensors")
    stored = read_model(tmp_path / "model.safetensors")
    old = ImageFormat("gaussian", stored.format.space, 1, None)
    assert old.unit == BY_TYPE
    for dtype, largest in ((np.uint8, 255), (np.uint16, 65535)):
        raw = pictures.astype(dtype)
        assert np.allclose(
            ArrayImages(raw, "gaussian", like=old).read(EVERYTHING)[:, 0], raw / largest
        )


def test_models_of_before_have_empty_classes(tmp_path):
    """Their classes are all numbers up to the largest label."""
    old = ImageFormat("categorical", (5, 6), 4, None)
    labels = np.random.default_rng(0).choice([0, 2, 3], (3, 5, 6))
    paths = [save_array(tmp_path / f"{n}.npy", image) for n, image in enumerate(labels)]
    for images in (
        ArrayImages(labels, "categorical", like=old),
        FileImages(paths, "categorical", like=old),
    ):
        assert images.format == old
        assert np.array_equal(images.read(EVERYTHING).argmax(axis=1), labels)


def test_a_model_of_floats_reads_integers_by_what_they_hold(pictures):
    floats = ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(pictures / 255)
    assert floats.image_format_.unit == BY_CONTENT
    assert floats.checked_images(pictures).read(EVERYTHING).max() <= 1


# ---- labels


def test_labels_with_gaps_are_a_table(tmp_path):
    labels = np.random.default_rng(0).choice([0, 2, 7, 530], (4, 5, 6)).astype(np.int32)
    images = ArrayImages(labels, "categorical")
    assert images.format.n_channels == 4
    assert images.format.labels == (0, 2, 7, 530)
    classes = images.read(EVERYTHING).argmax(axis=1)
    assert np.array_equal(images.format.to_labels(classes), labels)
    paths = [save_nifti(tmp_path / f"{n}.nii.gz", image) for n, image in enumerate(labels)]
    assert FileImages(paths, "categorical").format == images.format


def test_a_model_keeps_its_table_of_labels(tmp_path):
    labels = np.array([0, 2, 7])[np.digitize(blobs(6, (12, 10)), [0.3, 0.7])]
    model = ShapeAppearanceModel(2, likelihood="categorical", n_iter=1, n_threads=1).fit(labels)
    model.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.image_format_.labels == (0, 2, 7)
    some = np.where(labels[:2] == 2, 0, labels[:2])  # lacks one of them
    assert np.array_equal(loaded.transform(some), model.transform(some))
    with pytest.raises(ImageError, match="image 1 has label 3, and the model knows 0, 2, 7"):
        loaded.transform(np.stack([labels[0], np.full((12, 10), 3)]))


# ---- colours, masks of numpy.ma, sparse


@pytest.mark.parametrize("n_colours", [3, 4])
def test_colours_without_an_axis_are_asked_about(n_colours, tmp_path):
    pictures = grey(np.uint8, 255, 4, 8, 9, n_colours)
    with pytest.raises(ImageError, match=r"channel_axis=-1; if it is a third axis in space"):
        ArrayImages(pictures, "gaussian")
    with pytest.raises(ImageError, match=r"a\.npy is 8 x 9 x . of uint8: fit with channel_axis=-1"):
        FileImages([save_array(tmp_path / "a.npy", pictures[0])])
    assert ArrayImages(pictures, "gaussian", -1).format.n_channels == n_colours
    assert ArrayImages(pictures / 255, "gaussian").format.space == (8, 9, n_colours)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, np.uint16])
@pytest.mark.parametrize("as_list", [False, True])
def test_masked_arrays_are_missing_where_they_are_masked(dtype, as_list):
    raw = grey(dtype, 200, 3, 8, 9)
    hidden = noise(3, 8, 9) > 0.7
    raw[hidden] = np.iinfo(np.uint8).max  # must not count
    masked = np.ma.array(raw, mask=hidden)
    images = ArrayImages(list(masked) if as_list else masked, "gaussian").read(EVERYTHING)[:, 0]
    assert np.array_equal(np.isnan(images), hidden)
    unit = 1 if dtype is np.float64 else 255
    assert np.allclose(images[~hidden], raw[~hidden] / unit)


def test_masked_labels_are_missing():
    labels = np.ma.array(grey(np.uint8, 2, 3, 5, 5), mask=False)
    labels[0, 0] = np.ma.masked
    images = ArrayImages(labels, "categorical").read(EVERYTHING)
    assert np.isnan(images[0, :, 0]).all()
    assert np.isnan(images).sum() == 3 * 5


@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_matrices_are_explained(form):
    matrix = form(np.eye(6))
    for given in (matrix, [matrix, matrix]):
        with pytest.raises(ImageError, match=r"got a sparse .*X\.toarray\(\)"):
            ArrayImages(given, "gaussian")


# ---- missing values


def test_a_value_may_stand_for_missing(tmp_path):
    images = blobs(3, (6, 7))
    images[:, :2] = 0
    paths = [save_nifti(tmp_path / f"{n}.nii.gz", image) for n, image in enumerate(images)]
    files = FileImages(paths, missing_value=0, pad=1)
    read = files.read(EVERYTHING)[:, 0, 1:-1, 1:-1]
    assert np.array_equal(np.isnan(read), images == 0)
    assert files.missing_share(0) == pytest.approx((images[0] == 0).mean())
    model = ShapeAppearanceModel(1, n_iter=1, n_threads=1).fit(files)
    assert model.image_format_.missing_value == 0
    assert np.isnan(model.open_files(paths).read(EVERYTHING)[:, 0, 1]).all()


def test_what_a_mask_leaves_out_is_not_remarked_on(tmp_path, caplog):
    """Images were called mostly missing, for their own mask."""
    mask = np.zeros((8, 8), np.uint8)
    mask[2:6, 2:6] = 1
    raw = noise(4, 8, 8)
    paths = [save_nifti(tmp_path / f"{n}.nii", image) for n, image in enumerate(raw)]
    mask_path = save_nifti(tmp_path / "mask.nii", mask)
    FileImages(paths, mask=mask_path).check(for_fit=True)
    assert not caplog.records
    raw[1, 2:5] = np.nan
    save_nifti(paths[1], raw[1])
    FileImages(paths, mask=mask_path).check(for_fit=True)
    assert "1 of 4 images are mostly missing" in caplog.text
    assert "1.nii by 75%" in caplog.text


def test_a_mask_says_what_is_missing(tmp_path):
    images = [
        save_nifti(tmp_path / f"{n}.nii.gz", image) for n, image in enumerate(blobs(3, (6, 7)))
    ]
    inside = np.zeros((6, 7), np.uint8)
    inside[2:] = 1
    one = save_nifti(tmp_path / "mask.nii.gz", inside)
    read = FileImages(images, mask=one).read(EVERYTHING)[:, 0]
    assert np.isnan(read[:, :2]).all()
    assert not np.isnan(read[:, 2:]).any()
    each = [one, save_nifti(tmp_path / "all.nii", np.ones((6, 7), np.uint8)), one]
    files = FileImages(images, mask=each)
    assert [files.missing_share(n) > 0 for n in range(3)] == [True, False, True]
    assert [files.subset([2, 1]).missing_share(n) > 0 for n in range(2)] == [True, False]
    with pytest.raises(ImageError, match="one mask for all images, or one for each of 3, got 2"):
        FileImages(images, mask=each[:2])
    with pytest.raises(ImageError, match=r"differ in shape"):
        FileImages(
            images,
            mask=save_nifti(tmp_path / "other.nii", np.ones((5, 7), np.uint8)),
            resample=False,
        )
    nothing = save_nifti(tmp_path / "none.nii", np.zeros((6, 7), np.uint8))
    with pytest.raises(ImageError, match=r"no observed voxel: .* outside the mask"):
        FileImages(images, mask=nothing).check(for_fit=True)
