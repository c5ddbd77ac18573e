"""The walk of one image: which files of the package a fit and its report enter, in order.

python -m benchmarks.walk

Fits a model to a few tiny NIfTI files, writes the report on it, and lists every file whose
functions are called on the way. Both commands run once before, so that imports and compilation
do not count.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import nibabel as nib
import numpy as np

import anamorph
from anamorph.cli import app

PACKAGE = Path(anamorph.__file__).parent
N_IMAGES, SPACE = 6, (12, 12, 12)


def main() -> None:
    """Print the files in the order in which they are first entered, and how many they are."""
    with tempfile.TemporaryDirectory() as folder:
        images = write_images(Path(folder))
        model, report = f"{folder}/model.safetensors", f"{folder}/report.html"
        commands = [
            ["fit", *images, "-o", model, "-k", "2", "--iterations", "2", "--force", "--quiet"],
            ["report", model, *images, "-o", report, "--force", "--quiet"],
        ]
        for command in commands:
            run(command)
        seen: list[str] = []
        for command in commands:
            files = files_entered(lambda command=command: run(command))
            print(f"anamorph {command[0]}: {len(files)} files")
            for file in files:
                print(f"  {file}" + "  (seen before)" * (file in seen))
            seen += [file for file in files if file not in seen]
        print(f"together: {len(seen)} files")


def write_images(folder: Path) -> list[str]:
    """Write a few balls of different sizes as NIfTI files, and return their paths."""
    radius = np.sqrt(sum((axis - 5.5) ** 2 for axis in np.indices(SPACE)))
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


def files_entered(work: Callable[[], object]) -> list[str]:
    """Return the files of the package whose functions some work calls, by first call."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes, which run when they are imported, are not optimised.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                entered.setdefault(path.relative_to(PACKAGE).as_posix())

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered)


if __name__ == "__main__":
    main()
