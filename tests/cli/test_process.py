"""The command as a process: interrupted, out of space, quick to start, and with other pieces."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel, __version__
from anamorph.cli import app
from anamorph.storage.tensors import read_tensors
from tests.cli.conftest import QUICK

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"


def test_help_is_quick_and_loads_nothing_heavy():
    code = "import sys; sys.argv = ['anamorph', '--help']; from anamorph.cli import app\n"
    code += "app(standalone_mode=False); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Learn a model" in shown.stdout
    loaded = set(shown.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "numba", "sklearn", "matplotlib", "nibabel"}


def test_version(anamorph):
    assert anamorph("--version", succeeds=True).stdout == f"anamorph {__version__}\n"


@pytest.mark.parametrize(
    "command", [command.callback.__name__ for command in app.registered_commands]
)
def test_every_command_explains_itself_with_examples(anamorph, command):
    text = anamorph(command, "--help", succeeds=True).stdout
    assert "Example" in text
    assert f"anamorph {command}" in text
    assert "--quiet" in text
    assert "--json" in text


def n_iterations(checkpoint):
    return len(read_tensors(checkpoint, "checkpoint", 1)[1]["objective"])


def test_an_interrupted_fit_goes_on_to_the_same_model(
    anamorph_process, anamorph, pictures, tmp_path
):
    output, whole = tmp_path / "model.safetensors", tmp_path / "whole.safetensors"
    command = ("fit", pictures, "-o", output, "-k", 2, "--iterations", 400, "--threads", 1)
    process = anamorph_process(*command)
    checkpoint = tmp_path / "model.checkpoint"
    while process.poll() is None and not checkpoint.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    (line,) = stderr.splitlines()
    assert f"{checkpoint} is kept" in line
    assert line.endswith(f"anamorph fit {pictures} -o {output} -k 2 --iterations 400 --threads 1")
    assert not output.exists()
    n_done = n_iterations(checkpoint)
    few = ("-k", 2, "--iterations", n_done + 2, "--threads", 1)
    result = anamorph("fit", pictures, "-o", output, *few, succeeds=True)
    assert f"Reading {checkpoint}, to resume from it" in result.stdout
    assert not checkpoint.exists()
    anamorph("fit", pictures, "-o", whole, *few, succeeds=True)
    model, expected = ShapeAppearanceModel.load(output), ShapeAppearanceModel.load(whole)
    assert np.allclose(model.objective_, expected.objective_, rtol=1e-6)
    for name in ("mean_", "shape_basis_", "appearance_basis_"):
        assert np.allclose(getattr(model, name), getattr(expected, name), atol=1e-5)


def test_an_interruption_before_the_first_iteration(anamorph, pictures, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(ShapeAppearanceModel, "fit", interrupt)
    result = anamorph("fit", pictures, "-o", tmp_path / "model.safetensors", *QUICK)
    assert result.exit_code == 130
    assert "nothing was written" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are POSIX")
def test_no_space_for_the_model_leaves_the_checkpoint_or_what_was_there(
    anamorph_process, anamorph, pictures, tmp_path
):
    output = tmp_path / "model.safetensors"
    # So that there are no kernels to compile, for which there would be no space either.
    anamorph("fit", pictures, "-o", output, *QUICK, "--force", succeeds=True)
    (tmp_path / "model.latents.tsv").unlink()
    output.write_text("mine")
    process = anamorph_process(
        "fit", pictures, "-o", output, *QUICK, "--force", before=LIMIT.format(5000)
    )
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stdout + stderr
    (line,) = stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / 'model.checkpoint'} cannot be written")
    assert "too large" in line.lower()
    assert output.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "pictures"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are POSIX")
def test_no_space_for_decoded_images(anamorph_process, pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    process = anamorph_process("fit", pictures, "-o", output, *QUICK, before=LIMIT.format(2000))
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = stderr.splitlines()
    assert line.startswith("error: a temporary file in ")
    assert "give another cache folder" in line
    assert not output.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are POSIX")
def test_no_space_for_images_keeps_those_that_are_whole(anamorph_process, volume_model, tmp_path):
    process = anamorph_process(
        "sample", volume_model, "-n", 2, "-o", tmp_path / "out", before=LIMIT.format(500)
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = stderr.splitlines()
    assert f"{tmp_path / 'out' / 'sample-1.nii.gz'} cannot be written" in line
    assert os.listdir(tmp_path / "out") == []


def test_a_full_disk_at_the_end_keeps_the_fit(anamorph, pictures, tmp_path, monkeypatch):
    def fail(self, path):
        raise OSError(28, "No space left on device", str(path))

    output = tmp_path / "model.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr(ShapeAppearanceModel, "save", fail)
        error = anamorph("fit", pictures, "-o", output, *QUICK).error
    assert "No space left" in error
    assert str(output) in error
    assert f"kept in {tmp_path / 'model.checkpoint'}" in error
    anamorph("fit", pictures, "-o", output, *QUICK, succeeds=True)
    assert ShapeAppearanceModel.load(output).n_iter_ == 2
