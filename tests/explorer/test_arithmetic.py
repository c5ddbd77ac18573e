"""JavaScript computes what the package computes, and writes files that other programs read."""

import os
import shutil
import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from tests.explorer.golden import write_golden

NODE = shutil.which("node")
TESTS = sorted((Path(__file__).parent / "node").glob("*.test.mjs"))

pytestmark = pytest.mark.skipif(
    NODE is None, reason="no node: install Node.js 20 or later to test the explorer's arithmetic"
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Return how the tests in node ended, and the folder that they wrote to."""
    folder = tmp_path_factory.mktemp("golden")
    write_golden(folder)
    done = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", *map(str, TESTS)],
        env=os.environ | {"GOLDEN": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, folder


def test_javascript_makes_the_golden_arrays(outcome):
    done, _ = outcome
    failed = [line for line in done.stdout.splitlines() if line.strip().startswith("not ok")]
    assert done.returncode == 0, "\n".join([*failed, done.stdout[-4000:], done.stderr[-2000:]])
    assert done.stdout.count("\n# Subtest") >= 60


def test_volumes_are_nifti(outcome):
    _, folder = outcome
    volume = nib.load(folder / "volume.nii.gz")
    expected = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    found = np.asarray(volume.dataobj)
    assert found.shape == (3, 4, 5, 1, 2)
    np.testing.assert_array_equal(found[:, :, :, 0], np.moveaxis(expected, 0, -1))
    np.testing.assert_array_equal(
        volume.affine, [[0, 2, 0, -5], [-1, 0, 0, 7], [0, 0, 3, 2], [0, 0, 0, 1]]
    )
    labels = nib.load(folder / "labels.nii")
    i = np.arange(60).reshape(3, 4, 5)
    expected = np.where(i % 7 >= (i + 60) % 7 - 3, 0, 500)
    np.testing.assert_array_equal(np.asarray(labels.dataobj), expected)
    np.testing.assert_array_equal(labels.affine, np.diag([1, 2, 3, 1]))
    picture = nib.load(folder / "picture.nii")
    np.testing.assert_array_equal(np.asarray(picture.dataobj), np.arange(12).reshape(3, 4))


def test_animations_are_gif(outcome):
    _, folder = outcome
    with Image.open(folder / "animation.gif") as animation:
        assert animation.n_frames == 3
        assert animation.size == (60, 40)
        assert animation.info["duration"] == 70
        assert animation.info["loop"] == 0
        i = np.arange(60 * 40).reshape(40, 60)
        for n in range(3):
            animation.seek(n)
            expected = np.stack([i % 60 * 4, i // 60 * 6, np.full_like(i, 80 * n)], axis=-1)
            found = np.asarray(animation.convert("RGB"), int)
            assert np.abs(found - expected).max() <= 40  # of 256 colours for 7200
            assert np.abs(found - expected).mean() <= 8
