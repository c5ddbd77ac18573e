"""Pictures: grey, colour, transparency, depth, orientation."""

import zlib

import numpy as np
import pytest
from PIL import Image

from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from tests.images.filemaking import EVERYTHING, noise, save_picture


def pixels(*shape, dtype=np.uint8):
    return (noise(*shape) * np.iinfo(dtype).max).astype(dtype)


def read(path, *arguments):
    return FileImages([path], *arguments).read(EVERYTHING)[0]


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.TIFF"])
def test_grey_is_scaled_to_one(tmp_path, name):
    grey = pixels(6, 5)
    path = save_picture(tmp_path / name, grey)
    assert np.array_equal(read(path)[0], grey.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_colours_are_channels(tmp_path, name):
    colours = pixels(6, 5, 3)
    images = FileImages([save_picture(tmp_path / name, colours)])
    assert images.format.channel_axis == 3
    assert images.affine is None
    assert images.voxel_size == (1, 1)
    assert np.allclose(images.format.to_user(images.read(EVERYTHING))[0], colours / 255, atol=1e-6)


def test_jpeg_is_close(tmp_path):
    ramp = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (16, 1))
    path = save_picture(tmp_path / "a.jpg", ramp, quality=95)
    assert np.abs(read(path)[0] - ramp / 255).max() < 0.03


@pytest.mark.parametrize("n_channels", [2, 4])
def test_what_is_transparent_is_missing(tmp_path, n_channels):
    colours = pixels(6, 5, n_channels)
    colours[..., -1] = 255
    colours[:2, :, -1] = 0
    image = read(save_picture(tmp_path / "a.png", colours))
    assert np.isnan(image[:, :2]).all()
    expected = np.moveaxis(colours[2:, :, :-1], -1, 0) / 255
    assert np.allclose(image[:, 2:], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_16_bits_are_kept(tmp_path, name):
    grey = pixels(6, 5, dtype=np.uint16)
    image = read(save_picture(tmp_path / name, grey))
    assert np.allclose(image[0], grey / 65535, atol=1e-7)
    assert len(np.unique(image)) > 20


def test_floats_and_bits(tmp_path):
    voxels = 100 * noise(6, 5)
    assert np.array_equal(read(save_picture(tmp_path / "a.tif", voxels))[0], voxels)
    bits = voxels > 50
    assert np.array_equal(read(save_picture(tmp_path / "b.png", bits))[0], bits)


def test_indexed_pictures_are_labels_or_colours(tmp_path):
    labels = np.random.default_rng(0).integers(0, 4, (6, 5), dtype=np.uint8)
    picture = Image.fromarray(labels).convert("P")
    picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    picture.save(tmp_path / "a.png")
    classes = read(tmp_path / "a.png", "categorical")
    assert np.array_equal(classes.argmax(axis=0), labels)
    assert np.array_equal(read(tmp_path / "a.png")[0], labels == 1)


def test_photos_are_upright(tmp_path):
    ramp = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (16, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to look at it
    path = save_picture(tmp_path / "a.jpg", ramp, exif=exif)
    image = read(path)[0]
    assert image.shape == (24, 16)
    assert np.abs(image - np.rot90(ramp, -1) / 255).max() < 0.03


def test_colours_are_no_labels(tmp_path):
    with pytest.raises(ImageError, match=r"a\.png is in colour"):
        FileImages([save_picture(tmp_path / "a.png", pixels(6, 5, 3))], "categorical")


def test_several_pages_are_refused(tmp_path):
    page = Image.fromarray(pixels(6, 5))
    page.save(tmp_path / "a.tif", save_all=True, append_images=[page])
    with pytest.raises(ImageError, match="several pages"):
        FileImages([tmp_path / "a.tif"])


def test_a_picture_larger_than_its_file_can_hold_is_refused(tmp_path):
    path = save_picture(tmp_path / "a.png", pixels(6, 5))
    content = bytearray(path.read_bytes())
    content[16:24] = (20_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.png"):
        FileImages([path])


def test_grey_and_colour_do_not_mix(tmp_path):
    paths = [
        save_picture(tmp_path / "a.png", pixels(6, 5)),
        save_picture(tmp_path / "b.png", pixels(6, 5, 3)),
    ]
    with pytest.raises(ImageError, match=r"a\.png has 1 channel and .*b\.png has 3 channels"):
        FileImages(paths)


def test_sizes_that_differ_are_named(tmp_path):
    paths = [
        save_picture(tmp_path / "a.png", pixels(6, 5)),
        save_picture(tmp_path / "b.png", pixels(6, 7)),
    ]
    for resample in (False, True):
        with pytest.raises(
            ImageError, match=r"a\.png and .*b\.png differ in shape, 6 x 5 and 6 x 7"
        ):
            FileImages(paths, resample=resample)
