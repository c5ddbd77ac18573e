"""Kill a fit at every call by which it changes files, and see that the same command finishes it.

A fit runs in a process that counts its calls of open (to write), write, fsync, rename, unlink and
the like, and ends itself by SIGKILL at the k-th, before the call is made or after it. Then the same
command runs again. It must succeed, write the same bytes as a fit that was never killed, and leave
nothing else behind. Times are taken from a clock that stands still: else no two files are alike.

    python -m benchmarks.kills                 # 100 kills, at calls that are spread evenly
    python -m benchmarks.kills --kills 1000    # all of them, before and after each call
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

#: Runs the command in a process that dies at the k-th call; with k = 0 it counts them.
PROGRAM = """
import os, signal, sys, time
folder, k, when, *arguments = sys.argv[1:]
time.perf_counter = lambda: 0.0
count = 0

def watch(module, name, is_watched=lambda *arguments, **options: True):
    original = getattr(module, name)
    def watched(*arguments, **options):
        global count
        if not is_watched(*arguments, **options):
            return original(*arguments, **options)
        count += 1
        if count == int(k) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        is_last = count == int(k)
        try:
            return original(*arguments, **options)
        finally:
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, watched)

def is_own(path, *rest, **options):
    return isinstance(path, int) or os.path.realpath(path).startswith(folder)

def is_written(path, flags=0, *rest, **options):
    return is_own(path) and bool(flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR))

import anamorph.cli, anamorph.estimator, pathlib
import anamorph.storage.tensors as tensors
for name in ("replace", "rename", "unlink", "remove", "chmod", "truncate", "mkdir"):
    watch(os, name, is_own)
for name in ("fsync", "ftruncate", "write"):
    watch(os, name)
watch(os, "open", is_written)
watch(tensors, "save_file")
watch(pathlib.Path, "write_text")
sys.argv = ["anamorph", *arguments]
try:
    anamorph.cli.main()
finally:
    if k == "0":
        print("CALLS", count, file=sys.stderr)
"""


def make_images(folder: Path, n_images: int = 8) -> None:
    """Write small pictures of a blob in different places."""
    from PIL import Image

    folder.mkdir()
    generator = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:12j, -1:1:10j]
    for n in range(n_images):
        row, column = generator.uniform(-0.3, 0.3, 2)
        blob = np.exp(-((y - row) ** 2 + (x - column) ** 2) / 0.2)
        Image.fromarray(np.uint8(255 * blob)).save(folder / f"image-{n}.png")


def run_fit(folder: Path, k: int = 0, when: str = "before") -> subprocess.CompletedProcess[str]:
    """Fit a model to the images in a folder, killed at the k-th call; 0 for never."""
    arguments = ["fit", str(folder / "images"), "-o", str(folder / "out" / "model.safetensors")]
    arguments += ["-k", "2", "--iterations", "4", "--levels", "2", "--threads", "1"]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "out"), str(k), when, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def count_calls(folder: Path) -> tuple[int, dict[str, bytes]]:
    """Return how many calls a fit makes that is not killed, and the files that it writes."""
    done = run_fit(folder)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stderr.split("CALLS")[1]), read_outputs(folder)


def read_outputs(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files that were written, by name; none where no folder is yet."""
    out = folder / "out"
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.is_dir() else {}


def kill_and_finish(folder: Path, k: int, when: str, expected: dict[str, bytes]) -> str:
    """Kill a fit at its k-th call, run it again, and return what is wrong then; "" for nothing."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    killed = run_fit(folder, k, when)
    if killed.returncode != -9:
        return f"was not killed: {killed.returncode} {killed.stderr[-300:]}"
    if read_outputs(folder) == expected:  # killed after the last call: there is nothing left to do
        return ""
    done = run_fit(folder)
    if done.returncode:
        return f"ended with {done.returncode}: {done.stderr[-300:]}"
    found = read_outputs(folder)
    if found.keys() != expected.keys():
        return f"left {sorted(found)}"
    differing = [name for name in expected if found[name] != expected[name]]
    return f"differs in {', '.join(differing)}" if differing else ""


def main() -> None:
    """Place kills and print a line for each that went wrong, and their number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="how many; 100 by default")
    n_kills, started = parser.parse_args().kills, time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        make_images(folder / "images")
        n_calls, expected = count_calls(folder)
        places = [(k, when) for k in range(1, n_calls + 1) for when in ("before", "after")]
        n_chosen = min(n_kills, len(places))
        chosen = [places[n * len(places) // n_chosen] for n in range(n_chosen)]
        n_wrong = 0
        for k, when in chosen:
            wrong = kill_and_finish(folder, k, when, expected)
            n_wrong += bool(wrong)
            if wrong:
                print(f"killed {when} call {k} of {n_calls}: {wrong}", flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(chosen)} kills at {n_calls} calls, {n_wrong} went wrong, {seconds:.0f} s")
    sys.exit(bool(n_wrong))


if __name__ == "__main__":
    main()
