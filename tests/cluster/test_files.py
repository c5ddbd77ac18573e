"""Images that a worker opens again, and what it reads: the same as all of them together."""

import numpy as np
import pytest

from anamorph.images.files import FileImages
from tests.images.filemaking import noise, rotated_affine, save_nifti, save_picture

SOME = slice(2, 4)
SPACE = (8, 6, 7)


def scans(folder):
    """Volumes on two grids, the first of which is not among those that are opened again."""
    files = []
    for n in range(5):
        affine = rotated_affine(origin=(-20.0 + n // 2, 10.0, 5.0))
        files.append(save_nifti(folder / f"{n}.nii.gz", noise(*SPACE, seed=n), affine))
    return files, {"resample": True, "pad": 2, "cache": folder / "cache"}


def label_maps(folder):
    """Label maps, of which those that are opened again lack the last class."""
    files = [folder / f"{n}.nii.gz" for n in range(5)]
    for n, path in enumerate(files):
        labels = np.random.default_rng(n).integers(0, 4 if n == 0 else 2, SPACE)
        save_nifti(path, labels.astype(np.uint8))
    return files, {"likelihood": "categorical"}


def tissue_maps(folder):
    files = [(folder / f"{n}-a.nii", folder / f"{n}-b.nii") for n in range(5)]
    for n, pair in enumerate(files):
        for path in pair:
            save_nifti(path, noise(*SPACE, seed=n) / 2)
    return files, {"likelihood": "categorical"}


def pictures(folder):
    pixels = [(255 * noise(12, 10, 3, seed=n)).astype(np.uint8) for n in range(5)]
    return [save_picture(folder / f"{n}.png", p) for n, p in enumerate(pixels)], {}


@pytest.mark.parametrize("make", [scans, label_maps, tissue_maps, pictures])
def test_some_images_are_read_elsewhere_as_they_are_here(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    files, options = make(tmp_path)
    here = FileImages(files, **options)
    arguments = here.arguments(range(5)[SOME])
    monkeypatch.chdir("/")
    there = FileImages(**arguments)
    assert there.format == here.format
    assert there.pad == here.pad
    assert np.array_equal(there.read(slice(None)), here.read(SOME), equal_nan=True)


def test_paths_do_not_depend_on_where_a_process_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("image.npy", noise(4, 4))
    arguments = FileImages(["image.npy"], cache="decoded").arguments([0])
    assert arguments["files"] == [[str(tmp_path / "image.npy")]]
    assert arguments["cache"] == str(tmp_path / "decoded")
