"""Damaged files of every kind: an ImageError in one line or an image, never anything else.

Half of the damage to compressed files is done inside, and packed again with correct checksums, so
that it reaches the readers and not only what unpacks files for them.
"""

import gzip
import io
import resource
import struct
import zipfile
import zlib
from collections import Counter
from itertools import cycle, islice

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from tests.images.filemaking import EVERYTHING, noise, rotated_affine

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
MOST_MEMORY = 2**20  # KiB, more than any of these files may make us allocate


# ---- valid files


def volume(kind, dtype):
    image = kind((200 * noise(6, 5, 4)).astype(dtype), rotated_affine())
    return image.to_bytes()


def picture(format_, *shape, dtype=np.uint8, mode=None, **options):
    image = Image.fromarray((noise(*shape) * np.iinfo(dtype).max).astype(dtype))
    stream = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(stream, format_, **options)
    return stream.getvalue()


def array():
    stream = io.BytesIO()
    np.save(stream, noise(6, 5))
    return stream.getvalue()


def zipped(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", content)
    return stream.getvalue()


def with_checksums(content):
    """Return a PNG file whose chunks have the checksums of what they hold."""
    result, start = bytearray(content), 8
    while start + 12 <= len(result):
        length = int.from_bytes(result[start : start + 4], "big")
        end = start + 8 + length
        if end + 4 > len(result):
            break
        result[end : end + 4] = struct.pack(">I", zlib.crc32(result[start + 4 : end]))
        start = end + 4
    return bytes(result)


def as_it_is(content):
    return content


def compressed(content):
    return gzip.compress(content, 1)


VALID = [  # suffix, content, how to pack the content that has been damaged
    (".nii", volume(nib.Nifti1Image, np.float32), as_it_is),
    (".nii", volume(nib.Nifti2Image, np.int16), as_it_is),
    (".nii.gz", gzip.compress(volume(nib.Nifti1Image, np.uint8)), as_it_is),
    (".nii.gz", volume(nib.Nifti1Image, np.uint8), compressed),
    (".mgh", volume(nib.MGHImage, np.float32), as_it_is),
    (".mgz", volume(nib.MGHImage, np.uint8), compressed),
    (".png", picture("PNG", 6, 5), as_it_is),
    (".png", picture("PNG", 6, 5, 3), with_checksums),
    (".png", picture("PNG", 6, 5, 4), with_checksums),
    (".png", picture("PNG", 6, 5, mode="P"), with_checksums),
    (".jpg", picture("JPEG", 16, 16, 3), as_it_is),
    (".jpg", picture("JPEG", 16, 16, progressive=True), as_it_is),
    (".tif", picture("TIFF", 6, 5, dtype=np.uint16), as_it_is),
    (".tif", picture("TIFF", 6, 5, 3, compression="tiff_lzw"), as_it_is),
    (".tif", picture("TIFF", 6, 5, compression="tiff_adobe_deflate"), as_it_is),
    (".npy", array(), as_it_is),
    (".npz", zipped(array()), as_it_is),
    (".npz", array(), zipped),
]


# ---- damage


def flip_bits(content, generator):
    for _ in range(generator.integers(1, 9)):
        content[generator.integers(len(content))] ^= 1 << generator.integers(8)


def truncate(content, generator):
    del content[generator.integers(len(content)) :]


def change_a_field(content, generator):
    """Write an extreme number where the header is."""
    for _ in range(generator.integers(1, 4)):
        size = int(generator.choice((1, 2, 4)))
        start = int(generator.integers(max(1, min(len(content) - size, 352))))
        number = int(generator.choice(EXTREMES)) & (256**size - 1)
        content[start : start + size] = number.to_bytes(size, generator.choice(("little", "big")))


def scramble(content, generator):
    start = int(generator.integers(len(content)))
    content[start:] = generator.bytes(len(content) - start)


def insert(content, generator):
    start = int(generator.integers(len(content)))
    content[start:start] = generator.bytes(int(generator.integers(1, 40)))


def cut_out(content, generator):
    start = int(generator.integers(len(content)))
    del content[start : start + int(generator.integers(1, 40))]


DAMAGE = (flip_bits, truncate, change_a_field, scramble, insert, cut_out)


def damaged_files(count, seed):
    """Yield suffixes and contents."""
    generator = np.random.default_rng(seed)
    for suffix, valid, pack in islice(cycle(VALID), count):
        content = bytearray(valid)
        generator.choice(DAMAGE)(content, generator)
        yield suffix, pack(bytes(content))


def outcome(path, likelihood):
    """Return what became of an image: all else but "read" and "refused" is a failure."""
    complaint = str(path)
    try:
        images = FileImages([path], likelihood)
        images.check(for_fit=True)
        image = images.read(EVERYTHING)
    except ImageError as error:
        complaint = str(error)
    assert str(path) in complaint
    assert "\n" not in complaint
    if complaint != str(path):
        return "refused"
    assert image.shape == (1, images.format.n_channels, *images.format.space)
    return "read"


def fuzz(tmp_path, capfd, caplog, count, seed):
    outcomes = Counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n, (suffix, content) in enumerate(damaged_files(count, seed)):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content)
        outcomes[outcome(path, ("gaussian", "categorical")[n // len(VALID) % 2])] += 1
    assert capfd.readouterr() == ("", "")
    for record in caplog.records:  # what is odd about an image that can be read, e.g. its place
        assert record.name.startswith("anamorph.images"), record
        assert "\n" not in record.getMessage()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_MEMORY
    assert min(outcomes["read"], outcomes["refused"]) > count // 50


@pytest.mark.parametrize(("suffix", "content", "pack"), VALID)
def test_valid_files_are_read(tmp_path, suffix, content, pack):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pack(content))
    assert outcome(path, "gaussian") == "read"


def test_damaged_files(tmp_path, capfd, caplog):
    fuzz(tmp_path, capfd, caplog, 500, seed=0)


@pytest.mark.slow
@pytest.mark.long
def test_many_damaged_files(tmp_path, capfd, caplog):
    fuzz(tmp_path, capfd, caplog, 9500, seed=1)
