"""Images that are decoded once: kept in memory or in a cache, and the same as ever."""

import os
import pickle
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.cache import Cache, KeptImages, can_be_kept
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.readers.source import Source
from anamorph.kernels.threads import run_parallel, use_threads
from tests.images.filemaking import EVERYTHING, noise, save_nifti


@pytest.fixture
def decodings(monkeypatch):
    """Return a list that grows by a path whenever a file is decoded."""
    paths = []
    load = Source.load

    def counted(self):
        paths.append(self.path)
        return load(self)

    monkeypatch.setattr(Source, "load", counted)
    return paths


def volumes(tmp_path, suffix=".nii.gz"):
    return [save_nifti(tmp_path / f"{n}{suffix}", noise(4, 5, 6, seed=n)) for n in range(3)]


def test_compressed_files_are_decoded_once(tmp_path, decodings):
    paths = volumes(tmp_path)
    images = FileImages(paths)
    images.check(for_fit=True)
    first = images.read(EVERYTHING)
    assert np.array_equal(images.read(EVERYTHING), first)
    assert decodings == paths


def test_other_files_need_no_cache(tmp_path):
    paths = volumes(tmp_path, ".nii")
    FileImages(paths, cache=tmp_path / "cache").check(for_fit=True)
    assert os.listdir(tmp_path / "cache") == []


def test_a_folder_is_used_again_until_a_file_changes(tmp_path, decodings):
    paths, cache = volumes(tmp_path), tmp_path / "deep" / "cache"
    before = FileImages(paths, cache=cache).read(EVERYTHING)
    decodings.clear()
    assert np.array_equal(FileImages(paths, cache=cache).read(EVERYTHING), before)
    assert decodings == []
    save_nifti(paths[1], noise(4, 5, 6, seed=9))
    os.utime(paths[1], ns=(0, 12345))
    after = FileImages(paths, cache=cache).read(EVERYTHING)
    assert decodings == [paths[1]]
    assert np.array_equal(after[1, 0], noise(4, 5, 6, seed=9))
    assert sorted(file.suffix for file in cache.iterdir()) == [".npy"] * 4


def test_labels_and_intensities_are_kept_apart(tmp_path):
    labels = np.random.default_rng(0).integers(0, 3, (4, 5, 6)).astype(np.uint8)
    path = save_nifti(tmp_path / "a.nii.gz", labels)
    FileImages([path], cache=tmp_path / "cache", scale="none").read(EVERYTHING)
    classes = FileImages([path], "categorical", cache=tmp_path / "cache").read(EVERYTHING)
    assert np.array_equal(classes[0].argmax(axis=0), labels)


def test_a_damaged_or_emptied_cache_is_made_again(tmp_path):
    paths, cache = volumes(tmp_path), tmp_path / "cache"
    images = FileImages(paths, cache=cache)
    before = images.read(EVERYTHING)
    kept = sorted(cache.iterdir())
    kept[0].write_bytes(kept[0].read_bytes()[:-10])
    kept[1].write_bytes(b"")
    kept[2].unlink()
    assert np.array_equal(images.read(EVERYTHING), before)


def test_images_outlive_their_compressed_files(tmp_path):
    paths = volumes(tmp_path)
    images = FileImages(paths)
    before = images.read(EVERYTHING)
    for path in paths:
        path.unlink()
    assert np.array_equal(images.read(EVERYTHING), before)


def test_threads_may_share_a_collection(tmp_path):
    paths = [save_nifti(tmp_path / f"{n}.nii.gz", noise(4, 5, 6, seed=n)) for n in range(12)]
    expected = FileImages(paths).read(EVERYTHING)
    images = FileImages(paths)
    with use_threads(4):
        parts = run_parallel(lambda n: images.read(slice(n % 12, n % 12 + 1)), range(48))
    assert np.array_equal(np.concatenate(parts[12:24]), expected)


def test_what_is_decoded_without_a_folder_has_no_name(tmp_path, monkeypatch, decodings):
    paths, temporary = volumes(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    images = FileImages(paths)
    first = images.read(EVERYTHING)
    assert os.listdir(temporary) == []
    assert np.array_equal(images.read(EVERYTHING), first)
    assert decodings == paths


def test_a_copy_for_another_process_decodes_by_itself(tmp_path, decodings):
    paths = volumes(tmp_path)
    images = FileImages(paths)
    expected = images.read(EVERYTHING)
    again = pickle.loads(pickle.dumps(images._decoder.cache))
    images._decoder = replace(images._decoder, cache=again)
    assert np.array_equal(images.read(EVERYTHING), expected)
    assert decodings == 2 * paths


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_write_where_its_parent_does(tmp_path):
    images = FileImages(volumes(tmp_path))
    images.read(slice(0, 1))
    shared = images._decoder.cache._store._file.fileno()
    size = os.fstat(shared).st_size
    child = os.fork()
    if child == 0:
        images.read(EVERYTHING)
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert os.fstat(shared).st_size == size > 0


def test_a_folder_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match="give another cache folder"):
        Cache(tmp_path / "file")

    def no_space(*_, **__):
        raise OSError(28, "No space left on device")

    cache = Cache(tmp_path / "cache")
    monkeypatch.setattr(np, "save", no_space)
    with pytest.raises(ImageError, match="No space left on device"):
        cache.get("a", (), lambda: np.zeros(3))
    assert os.listdir(tmp_path / "cache") == []


@pytest.fixture
def small_files(tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(5)]
    for number, path in enumerate(paths):
        np.save(path, noise(6, 7, seed=number))
    return paths


def test_every_file_is_read_once(small_files, monkeypatch):
    images, parts = FileImages(small_files), []
    expected, read = images.read(EVERYTHING), images.read
    monkeypatch.setattr(images, "read", lambda part: parts.append(part) or read(part))
    kept = KeptImages(images, (1, 6, 7))
    assert len(kept) == 5
    for part in (slice(1, 3), slice(0, 2), slice(1, 3), EVERYTHING, slice(4, 5)):
        assert np.array_equal(kept.read(part), expected[part])
    assert parts == [slice(1, 3), slice(0, 2), EVERYTHING]


def test_a_fit_to_files_reads_them_once(small_files, monkeypatch):
    n_read = []
    read = FileImages.read
    monkeypatch.setattr(
        FileImages,
        "read",
        lambda self, part: n_read.append(len(read(self, part))) or read(self, part),
    )
    ShapeAppearanceModel(1, n_iter=2, n_steps=2, likelihood="bernoulli").fit(small_files)
    assert sum(n_read) == 5
    ShapeAppearanceModel(1, n_iter=2, n_steps=2).fit(small_files)  # default penalties look at some
    assert sum(n_read) == 15


def test_only_few_and_small_images_are_kept():
    assert can_be_kept(300, (1, 28, 28), budget=2**23)
    assert not can_be_kept(300, (1, 28, 28), budget=2**22)
