"""Standard output that breaks does not end a fit; a signal at the start is one line."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from tests.cli.conftest import QUICK, blobs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and devices of POSIX")

#: Sends signals to the process when it imports a module.
AT_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *arguments):
        if name == {module!r}:
            for number in {numbers}:
                os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
"""

#: Depends on how far a command has come when a module is imported.
INTERRUPTED = (
    "error: interrupted\n",
    "error: interrupted; files that were finished are kept\n",
    "Stopped before the first iteration was done; nothing was written\n",
)


def run(*arguments, before="", **options):
    code = f"{before}\nimport sys; sys.argv[0] = 'anamorph'\n"
    code += "from anamorph.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        **{"stderr": subprocess.PIPE, "text": True, "check": False} | options,
    )


def test_a_full_standard_output_does_not_end_a_fit(pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    with open("/dev/full", "w") as full:
        done = run("fit", pictures, "-o", output, *QUICK, stdout=full)
    assert (done.returncode, done.stderr) == (0, "")
    assert output.exists()


def test_a_closed_pipe_does_not_end_a_fit(anamorph_process, pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    with anamorph_process("fit", pictures, "-o", output, "-k", 2, "--iterations", 8) as process:
        assert process.stdout.readline().startswith("Reading")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
    assert output.exists()


def test_a_fit_without_any_standard_output(pictures, tmp_path):
    output = tmp_path / "model.safetensors"
    done = run("fit", pictures, "-o", output, *QUICK, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")
    assert output.exists()


def test_a_result_that_cannot_be_printed_is_an_error(picture_model):
    with open("/dev/full", "w") as full:
        done = run("info", picture_model, "--json", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the result cannot be written to standard output")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["numba", "anamorph.estimator", "sklearn.base"])
def test_a_signal_while_starting_is_one_line(pictures, tmp_path, number, module):
    before = AT_IMPORT.format(module=module, numbers=[int(number)])
    done = run("fit", pictures, "-o", tmp_path / "model", *QUICK, before=before)
    assert done.returncode == 130
    assert done.stderr in INTERRUPTED
    left = [name for name in os.listdir(tmp_path) if name.endswith(".lock")]
    assert set(os.listdir(tmp_path)) == {"pictures", *left}


def test_a_second_signal_does_not_wait_for_an_import(pictures, tmp_path):
    before = AT_IMPORT.format(module="numba", numbers=[int(signal.SIGINT)] * 2)
    done = run("fit", pictures, "-o", tmp_path / "model", *QUICK, before=before)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


#: Imports a module after the second iteration.
IN_A_FIT = """
from anamorph.cli.terminal.messages import FitDisplay
advance = FitDisplay.advance
def importing(display, progress):
    advance(display, progress)
    if progress.n_done == 2:
        import this
FitDisplay.advance = importing
"""


def test_an_interrupt_while_a_fit_imports_says_how_to_resume(pictures, tmp_path):
    before = AT_IMPORT.format(module="this", numbers=[int(signal.SIGINT)]) + IN_A_FIT
    output = tmp_path / "model.safetensors"
    done = run("fit", pictures, "-o", output, "-k", 2, "--iterations", 400, before=before)
    assert done.returncode == 130
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path / 'model.checkpoint'} is kept" in line


#: Sends a signal to the process while LLVM asks for a kernel that it loads.
IN_LLVM = """
import os, signal
from llvmlite.binding import ExecutionEngine
find = ExecutionEngine._find_module_ptr
def finding(engine, pointer):
    ExecutionEngine._find_module_ptr = find
    os.kill(os.getpid(), signal.SIGINT)
    return find(engine, pointer)
ExecutionEngine._find_module_ptr = finding
"""


def test_an_interrupt_while_a_kernel_is_loaded_is_one_line(pictures, tmp_path):
    done = run("fit", pictures, "-o", tmp_path / "model", *QUICK, before=IN_LLVM)
    assert (done.returncode, done.stderr) == (130, INTERRUPTED[-1])


def test_an_interrupt_before_the_command_is_one_line(pictures, tmp_path):
    before = AT_IMPORT.format(module="anamorph.cli.app", numbers=[int(signal.SIGINT)])
    done = run("fit", pictures, "-o", tmp_path / "model", before=before)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_no_memory_is_one_line(anamorph, picture_model, monkeypatch):
    def fail(*arguments):
        raise MemoryError("Unable to allocate 7.00 TiB")

    monkeypatch.setattr("anamorph.estimator.ShapeAppearanceModel.load", fail)
    assert "there is not enough memory" in anamorph("info", picture_model).error


def test_the_command_tells_how_many_images_are_done(anamorph, tmp_path):
    for n, image in enumerate(blobs(40, (10, 8))):
        np.save(tmp_path / f"{n:02d}.npy", image)
    path = tmp_path / "model.safetensors"
    ShapeAppearanceModel(2, n_iter=1, n_threads=1).fit(blobs(6, (10, 8))).save(path)
    for command, output in (("encode", "z.tsv"), ("reconstruct", "r"), ("impute", "i")):
        result = anamorph(
            command, path, f"{tmp_path}/*.npy", "-o", tmp_path / output, succeeds=True
        )
        assert "40 of 40 images" in result.stdout
