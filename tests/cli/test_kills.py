"""Fits that are killed where they change files, two at once, and outputs that cannot be written."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.kills import count_calls, kill_and_finish, make_images
from tests.cli.conftest import QUICK, blobs


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_where_it_changes_files_a_fit_finishes_with_the_same_bytes(tmp_path):
    make_images(tmp_path / "images")
    n_calls, expected = count_calls(tmp_path)
    assert sorted(expected) == ["model.latents.tsv", "model.safetensors"]
    # The last calls are those of the commit: names, the checkpoint, the lock.
    for k, when in [(7, "after"), *((n_calls - back, "before") for back in (0, 2, 4, 6))]:
        assert kill_and_finish(tmp_path, k, when, expected) == "", (k, n_calls)


def test_two_fits_with_one_output(anamorph_process, anamorph, pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    first = anamorph_process("fit", pictures, "-o", output, "-k", 2, "--iterations", 4000)
    try:
        while not (tmp_path / "model.checkpoint").exists():
            assert first.poll() is None
        for name in (output, tmp_path / "model"):  # which has the same latents and checkpoint
            error = anamorph("fit", pictures, "-o", name, *QUICK).error
            assert "is being written by another fit" in error
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert sorted(os.listdir(tmp_path)) == ["model.checkpoint", "pictures"]


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full", "/proc/nothing/model"])
@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="places of Linux")
def test_an_output_that_cannot_be_is_told_before_the_images_are_read(anamorph, pictures, place):
    for more in ((), ("--force",)):
        result = anamorph("fit", pictures, "-o", place, *QUICK, *more)
        assert place.rpartition("/")[0] in result.error
        assert "Reading" not in result.stdout


def test_an_unwritable_folder_is_told_before_the_images_are_read(
    anamorph, pictures, tmp_path, monkeypatch
):
    from anamorph.storage import commit

    def refuse(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(commit.os, "open", refuse)
    result = anamorph("fit", pictures, "-o", tmp_path / "model.safetensors", *QUICK)
    assert "Read-only file system" in result.error
    assert "Reading" not in result.stdout


def test_a_link_as_output_is_followed(anamorph, pictures, tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "model.safetensors"
    link.symlink_to(tmp_path / "there" / "real.safetensors")
    anamorph("fit", pictures, "-o", link, *QUICK, succeeds=True)
    assert link.is_symlink()
    assert os.listdir(tmp_path / "there") == ["real.safetensors"]
    anamorph("info", link, succeeds=True)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", b"a\xffb"])
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not have such names")
def test_names_that_a_table_cannot_hold_are_told_before_the_fit(
    anamorph, pictures, tmp_path, name, picture_model
):
    odd = pictures / f"{os.fsdecode(name)}.png"
    os.rename(pictures / "face-1.png", odd)
    result = anamorph("fit", pictures, "-o", tmp_path / "model.safetensors", *QUICK)
    assert "rename the file" in result.error
    assert "Reading" not in result.stdout
    assert "rename the file" in anamorph("encode", picture_model, odd, "-o", tmp_path / "z").error
    assert sorted(os.listdir(tmp_path)) == ["pictures"]


def test_leftovers_of_a_killed_fit_are_removed(anamorph, pictures, tmp_path):
    for name in (
        ".model.safetensors.0123abcd.safetensors",
        ".model.checkpoint.0123abcd.checkpoint",
    ):
        (tmp_path / name).write_text("latents of someone")
    anamorph("fit", pictures, "-o", tmp_path / "model.safetensors", *QUICK, succeeds=True)
    assert sorted(os.listdir(tmp_path)) == ["model.latents.tsv", "model.safetensors", "pictures"]


def test_a_fit_that_was_killed_after_its_model_was_written_finishes(
    anamorph, pictures, tmp_path, monkeypatch
):
    """The model has its name, the table has not: what `kill -9` leaves between two renames."""
    output = tmp_path / "model.safetensors"
    code = (
        "import os, signal, sys\nreplace = os.replace\n"
        "def dying(source, target):\n"
        "    if str(target).endswith('model.latents.tsv'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(source, target)\n"
        "os.replace = dying\n"
        "sys.argv[0] = 'anamorph'\nfrom anamorph.cli import main; main()"
    )
    command = ("fit", pictures, "-o", output, *QUICK)
    killed = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert output.exists()
    assert not (tmp_path / "model.latents.tsv").exists()
    result = anamorph(*command, succeeds=True)
    assert "Fitted 10 images" in result.stdout
    assert sorted(os.listdir(tmp_path)) == ["model.latents.tsv", "model.safetensors", "pictures"]
    assert "exists already" in anamorph(*command).error


def test_the_command_says_it_in_one_line(anamorph, tmp_path):
    for n, image in enumerate(blobs(6, (12, 10)) * np.float64(1e20)):
        np.save(tmp_path / f"{n}.npy", image)
    result = anamorph("fit", tmp_path, "-o", tmp_path / "m", "-k", 2, "--balance", "1e-30,0")
    assert "has values up to 1e+20" in result.error
    assert not (tmp_path / "m").exists()
