"""Images that are kept in memory: read once, and the same as ever."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.files import FileImages
from anamorph.images.kept import KeptImages, can_be_kept
from tests.images.filemaking import EVERYTHING, noise


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(5)]
    for number, path in enumerate(paths):
        np.save(path, noise(6, 7, seed=number))
    return paths


def test_every_file_is_read_once(paths, monkeypatch):
    images, parts = FileImages(paths), []
    expected, read = images.read(EVERYTHING), images.read
    monkeypatch.setattr(images, "read", lambda part: parts.append(part) or read(part))
    kept = KeptImages(images, (1, 6, 7))
    assert len(kept) == 5
    for part in (slice(1, 3), slice(0, 2), slice(1, 3), EVERYTHING, slice(4, 5)):
        assert np.array_equal(kept.read(part), expected[part])
    assert parts == [slice(1, 3), slice(0, 2), EVERYTHING]


def test_a_fit_to_files_reads_them_once(paths, monkeypatch):
    n_read = []
    read = FileImages.read
    monkeypatch.setattr(
        FileImages,
        "read",
        lambda self, part: n_read.append(len(read(self, part))) or read(self, part),
    )
    ShapeAppearanceModel(1, n_iter=2, n_steps=2).fit(paths)
    assert sum(n_read) == 5


def test_only_few_and_small_images_are_kept():
    assert can_be_kept(300, (1, 28, 28), budget=2**23)
    assert not can_be_kept(300, (1, 28, 28), budget=2**22)
