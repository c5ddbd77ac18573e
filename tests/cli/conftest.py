"""A command line to call, and folders of small images."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from anamorph.cli import app
from tests.images.filemaking import rotated_affine, save_nifti, save_picture

N_IMAGES = 10
SPACE = (12, 10)
VOLUME = (8, 6, 7)

QUICK = ("-k", "2", "--iterations", "2", "--threads", "1")


def blobs(n_images, space, seed=0):
    """Return images (n_images, *space) of a blob that is never in the same place, from 0 to 1."""
    generator = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.linspace(-1, 1, length) for length in space], indexing="ij")
    centres = generator.uniform(-0.3, 0.3, (n_images, len(space)))
    widths = generator.uniform(0.3, 0.6, n_images)
    squares = [sum((x - c) ** 2 for x, c in zip(axes, centre, strict=True)) for centre in centres]
    images = np.exp(-np.array(squares) / widths.reshape(-1, *(1,) * len(space)) ** 2)
    return (images + 0.02 * generator.random(images.shape)).clip(0, 1).astype(np.float32)


class Result:
    """What a command printed, and how it ended."""

    def __init__(self, result):
        self.exit_code = result.exit_code
        self.stdout, self.stderr = result.stdout, result.stderr
        self.exception = result.exception

    @property
    def json(self):
        return json.loads(self.stdout)

    @property
    def error(self):
        """The one line of an error that a person can put right."""
        assert self.exit_code == 1, (self.exit_code, self.stdout, self.stderr)
        (line,) = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in self.stderr
        return line.removeprefix("error: ")


@pytest.fixture
def anamorph():
    """Return a function that runs a command in this process."""

    def run(*arguments, succeeds=False):
        result = Result(CliRunner().invoke(app, [str(argument) for argument in arguments]))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if succeeds:
            assert result.exit_code == 0, result.stderr
        return result

    return run


@pytest.fixture
def anamorph_process():
    """Return a function that starts a command in a process of its own."""

    def start(*arguments, before="", **options):
        code = f"{before}\nimport sys; sys.argv[0] = 'anamorph'\n"
        code += "from anamorph.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            **options,
        )

    return start


# ---- folders of images, made once


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


def _folder(parent, name):
    (parent / name).mkdir()
    return parent / name


@pytest.fixture(scope="session")
def _pictures(made):
    folder = _folder(made, "pictures")
    tints = np.array([1, 0.7, 0.4])
    for n, image in enumerate(blobs(N_IMAGES, SPACE), start=1):
        pixels = (255 * image[..., None] * tints).astype(np.uint8)
        save_picture(folder / f"face-{n}.png", pixels)
    return folder


@pytest.fixture(scope="session")
def _volumes(made):
    folder = _folder(made, "volumes")
    for n, image in enumerate(blobs(N_IMAGES, VOLUME), start=1):
        save_nifti(folder / f"sub-{n:02d}.nii.gz", image, rotated_affine())
    return folder


@pytest.fixture(scope="session")
def _label_maps(made):
    folder = _folder(made, "labels")
    for n, image in enumerate(blobs(N_IMAGES, VOLUME), start=1):
        labels = np.digitize(image, [0.3, 0.7]).astype(np.uint8)
        save_nifti(folder / f"sub-{n:02d}.nii.gz", labels, rotated_affine())
    return folder


# Commands get copies: a test that damages one does not disturb the others.


@pytest.fixture
def pictures(_pictures, tmp_path):
    """Ten RGB PNG."""
    return shutil.copytree(_pictures, tmp_path / "pictures")


@pytest.fixture
def volumes(_volumes, tmp_path):
    """Ten compressed NIfTI with a rotated affine."""
    return shutil.copytree(_volumes, tmp_path / "volumes")


@pytest.fixture
def label_maps(_label_maps, tmp_path):
    """Ten label maps of three classes, NIfTI with a rotated affine."""
    return shutil.copytree(_label_maps, tmp_path / "labels")


def _fitted(made, name, *arguments):
    path = made / f"{name}.safetensors"
    result = CliRunner().invoke(app, ["fit", *map(str, arguments), "-o", str(path), *QUICK])
    assert result.exit_code == 0, result.stderr
    return path


@pytest.fixture(scope="session")
def picture_model(_pictures, made):
    return _fitted(made, "pictures", _pictures)


@pytest.fixture(scope="session")
def volume_model(_volumes, made):
    return _fitted(made, "volumes", _volumes, "--pad", 1)


@pytest.fixture(scope="session")
def label_model(_label_maps, made):
    return _fitted(made, "labels", _label_maps, "--labels")
