"""What remains of a command that is stopped, gently or not: no copies of images, in any case."""

import os
import signal
import time
from contextlib import suppress

import pytest


def open_files(process):
    """Return what a process has open; it may close some of it meanwhile."""
    links = []
    for file in os.scandir(f"/proc/{process.pid}/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(file.path))
    return links


@pytest.fixture
def stopped_fit(anamorph_process, volumes, tmp_path):
    """Return a function that stops a fit after its first iteration, and gives it as it ended."""
    temporary, checkpoint = tmp_path / "temporary", tmp_path / "model.checkpoint"
    temporary.mkdir()

    def stop(number):
        process = anamorph_process(
            "fit", volumes, "-o", tmp_path / "model.safetensors", "-k", 2, "--iterations", 4000,
            "--threads", 1, before=f"import tempfile; tempfile.tempdir = {str(temporary)!r}",
        )  # fmt: skip
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.01)
        copies = [link for link in open_files(process) if link.startswith(str(temporary))]
        assert copies  # it works with
        process.send_signal(number)
        process.stderr_text = process.communicate(timeout=60)[1]
        return process, temporary

    return stop


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open files are listed by Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_fit_that_is_stopped_leaves_no_copies_of_images(stopped_fit, number):
    process, temporary = stopped_fit(number)
    assert os.listdir(temporary) == []
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "the same command resumes the fit" in process.stderr_text
