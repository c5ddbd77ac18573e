"""The walk of one image: which files of the package a fit and its report enter, in order.

python -m benchmarks.walk

Fits a model to a few tiny NIfTI files, writes the report on it, and lists every file whose
functions are called on the way. A star marks files that voxels pass: a function in them takes or
returns an array with as many numbers as an image has voxels. Both commands run once before, which
leaves out imports and compilation. A test compares what it prints with `docs/how-it-works.md`.
"""

from __future__ import annotations

import inspect
import math
import sys
import tempfile
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import nibabel as nib
import numpy as np

import anamorph
from anamorph.cli import app

PACKAGE = Path(anamorph.__file__).parent
N_IMAGES, SPACE = 6, (12, 14, 13)


def main() -> None:
    """Print the files in the order in which they are first entered, and their number."""
    print(describe_walks())


def describe_walks() -> str:
    """Return in words which files a fit enters, and which others its report."""
    with tempfile.TemporaryDirectory() as folder:
        images = write_images(Path(folder))
        model, report = f"{folder}/model.safetensors", f"{folder}/report.html"
        commands = [
            ["fit", *images, "-o", model, "-k", "2", "--iterations", "2"],
            ["report", model, *images, "-o", report],
        ]
        commands = [[*command, "--threads", "1", "--force", "--quiet"] for command in commands]
        for command in commands:
            run(command)
        walks = [walk(command) for command in commands]
    seen: dict[str, bool] = {}
    lines = []
    for command, files in zip(commands, walks, strict=True):
        lines.append(f"anamorph {command[0]} enters {describe_number(files)}")
        lines.append(list_files({file: files[file] for file in files if file not in seen}))
        for file, has_voxels in files.items():
            seen[file] = seen.get(file, False) or has_voxels
    return "\n".join([*lines, f"together {describe_number(seen)}"])


def list_files(files: dict[str, bool]) -> str:
    """Return lines of files, with a star behind those that voxels pass."""
    marked = [f"{file}{'*' * has_voxels}" for file, has_voxels in files.items()]
    return textwrap.fill("  ".join(marked), 98, initial_indent="  ", subsequent_indent="  ")


def describe_number(files: dict[str, bool]) -> str:
    """Return in words how many files there are."""
    return f"{len(files)} files; voxels pass {sum(files.values())} of them"


def write_images(folder: Path) -> list[str]:
    """Write a few balls of different sizes as NIfTI files, and return their paths."""
    radius = np.sqrt(sum((axis - 6) ** 2 for axis in np.indices(SPACE)))
    paths = []
    for n in range(N_IMAGES):
        voxels = 1 / (1 + np.exp(radius - 3 - 0.3 * n))
        path = folder / f"sub-{n}.nii.gz"
        nib.save(nib.Nifti1Image(voxels.astype(np.float32), np.eye(4)), path)
        paths.append(str(path))
    return paths


def run(command: Sequence[str]) -> None:
    """Run a command of ``anamorph`` in this process."""
    app(command, standalone_mode=False)


def walk(command: Sequence[str]) -> dict[str, bool]:
    """Return the files that a command enters, by first call, and whether voxels pass them."""
    entered: dict[str, bool] = {}

    def note(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        # The bodies of modules and classes run when they are imported; they are not optimised.
        if event not in ("call", "return") or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return
        file = path.relative_to(PACKAGE).as_posix()
        entered.setdefault(file, False)
        if not entered[file]:
            values = list(frame.f_locals.values()) if event == "call" else [result]
            entered[file] = any(map(holds_voxels, values))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def holds_voxels(value: Any) -> bool:
    """Return whether a value is an array as large as an image, or a list or tuple with one."""
    if isinstance(value, list | tuple):
        return any(map(holds_voxels, value[:4]))
    return isinstance(value, np.ndarray) and value.size >= math.prod(SPACE)


if __name__ == "__main__":
    main()
