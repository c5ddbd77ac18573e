"""NIfTI files: voxels, affines and slopes in, the same space out."""

import os

import nibabel as nib
import numpy as np
import pytest

from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.storage.errors import WriteError
from anamorph.storage.outputs import write_nifti
from tests.images.filemaking import EVERYTHING, noise, rotated_affine, save_nifti


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "A.NII.GZ"])
@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
def test_voxels_and_affine_are_those_of_the_file(tmp_path, name, kind):
    voxels, affine = noise(5, 6, 7), rotated_affine()
    images = FileImages([save_nifti(tmp_path / name, voxels, affine, kind)])
    assert np.array_equal(images.read(EVERYTHING)[0, 0], voxels)
    assert images.format.space == (5, 6, 7)
    assert np.allclose(images.affine, affine, atol=1e-5)
    assert np.allclose(images.voxel_size, (1, 1.5, 2), atol=1e-6)
    assert images.identities == [name[0]]


def test_slope_and_intercept_apply(tmp_path):
    volume = nib.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.eye(4))
    volume.header.set_slope_inter(0.5, -3)
    nib.save(volume, tmp_path / "a.nii.gz")
    raw = nib.load(tmp_path / "a.nii.gz").get_fdata()
    image = FileImages([tmp_path / "a.nii.gz"]).read(EVERYTHING)[0, 0]
    assert np.allclose(image, raw, atol=1e-5)
    assert raw.min() == -3


def test_integers_of_a_scanner_are_what_they_are(tmp_path):
    voxels = np.arange(-12, 12, dtype=np.int16).reshape(2, 3, 4)
    assert np.array_equal(
        FileImages([save_nifti(tmp_path / "a.nii", voxels)]).read(EVERYTHING)[0, 0], voxels
    )


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535)])
def test_unsigned_integers_are_scaled_to_one(tmp_path, dtype, largest):
    voxels = np.full((2, 3, 4), largest, dtype)
    voxels[0] = 0
    image = FileImages([save_nifti(tmp_path / "a.nii", voxels)]).read(EVERYTHING)
    assert np.array_equal(np.unique(image), [0, 1])


def test_big_endian_files_are_read(tmp_path):
    voxels = noise(3, 4, 5)
    header = nib.Nifti1Header(endianness=">")
    nib.save(nib.Nifti1Image(voxels, np.eye(4), header), tmp_path / "a.nii")
    assert np.array_equal(FileImages([tmp_path / "a.nii"]).read(EVERYTHING)[0, 0], voxels)


@pytest.mark.parametrize("shape", [(5, 6, 7, 1), (5, 6, 7, 1, 1), (5, 6, 1), (5, 6)])
def test_trailing_axes_of_length_one_do_not_count(tmp_path, shape):
    voxels = noise(*shape)
    images = FileImages([save_nifti(tmp_path / "a.nii.gz", voxels)])
    assert images.format.space == tuple(length for length in shape if length > 1)
    assert np.array_equal(images.read(EVERYTHING).ravel(), voxels.ravel())


def test_channels_are_last(tmp_path):
    voxels = noise(5, 6, 7, 2)
    images = FileImages([save_nifti(tmp_path / "a.nii", voxels)], channel_axis=-1)
    assert images.format.n_channels == 2
    assert images.format.channel_axis == 4
    assert np.array_equal(images.format.to_user(images.read(EVERYTHING))[0], voxels)
    with pytest.raises(ImageError, match="fit without channel_axis"):
        FileImages([save_nifti(tmp_path / "b.nii", noise(5, 6, 7))], channel_axis=-1)


def test_time_series_are_refused(tmp_path):
    with pytest.raises(ImageError, match=r"a\.nii is 5 x 6 x 7 x 2, .* one volume per file"):
        FileImages([save_nifti(tmp_path / "a.nii", noise(5, 6, 7, 2))])


def damaged(tmp_path, **fields):
    """Return a file whose header has other values in some fields."""
    path = save_nifti(tmp_path / "a.nii", noise(5, 6, 7))
    header = nib.load(path).header.copy()
    for name, value in fields.items():
        header[name] = value
    path.write_bytes(header.binaryblock + path.read_bytes()[348:])
    return path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"srow_x": np.nan}, "affine that is not finite"),
        ({"srow_x": 0}, "singular affine"),
        ({"srow_x": (1, 1, 0, 0), "srow_y": (1, 1, 0, 0)}, "singular affine"),
        ({"dim": (3, 500, 500, 500, 1, 1, 1, 1)}, "truncated or damaged"),
        ({"dim": (3, 30000, 30000, 30000, 1, 1, 1, 1)}, "more than"),
        ({"dim": (3, 5, -6, 7, 1, 1, 1, 1)}, "empty"),
        ({"magic": b"xyz"}, "cannot be read as a NIfTI file"),
        ({"sizeof_hdr": 12}, "not a NIfTI file"),
        ({"datatype": 32, "bitpix": 64, "dim": (3, 5, 6, 3, 1, 1, 1, 1)}, "not real numbers"),
        ({"datatype": 99}, "cannot be read as a NIfTI file"),
    ],
)
def test_damaged_headers_are_named(tmp_path, fields, message, capfd):
    with pytest.raises(ImageError, match=message) as error:
        FileImages([damaged(tmp_path, **fields)])
    assert "a.nii" in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_truncated_files_are_named(tmp_path, name, share):
    path = save_nifti(tmp_path / name, noise(8, 9, 10))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ImageError, match=rf"{name} .*(damaged|not a NIfTI)"):
        FileImages([path]).check(for_fit=True)


def test_a_compressed_file_with_the_wrong_name_gets_advice(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", noise(5, 6, 7)).rename(tmp_path / "a.nii")
    with pytest.raises(ImageError, match=r"rename it to a\.nii\.gz"):
        FileImages([path])


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6)])
def test_what_is_written_is_in_the_same_space(tmp_path, name, shape):
    voxels, affine = noise(*shape), rotated_affine()
    voxels[1, 2] = np.nan
    write_nifti(tmp_path / name, voxels, affine)
    volume = nib.load(tmp_path / name)
    assert np.allclose(volume.affine, affine, atol=1e-5)
    assert volume.get_data_dtype() == np.float32
    images = FileImages([tmp_path / name])
    assert np.array_equal(images.read(EVERYTHING)[0, 0], voxels, equal_nan=True)
    assert os.listdir(tmp_path) == [name]


def test_an_earlier_file_survives_a_failure_to_write(tmp_path, monkeypatch):
    path = tmp_path / "a.nii"
    write_nifti(path, noise(3, 4, 5), None)
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nib, "save", no_space)
    with pytest.raises(WriteError, match=r"a\.nii cannot be written: .*No space left"):
        write_nifti(path, noise(3, 4, 5), None)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.nii"]


def test_writing_needs_a_folder_and_a_suffix(tmp_path):
    with pytest.raises(WriteError, match="cannot be written"):
        write_nifti(tmp_path / "nowhere" / "a.nii", noise(3, 4, 5), None)
    with pytest.raises(ImageError, match=r"must end with \.nii"):
        write_nifti(tmp_path / "a.img", noise(3, 4, 5), None)
