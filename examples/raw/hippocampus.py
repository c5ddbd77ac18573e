"""Hippocampi as they came: crops of T1 scans on their own grids, with intensities of any size.

``anamorph fit`` learns from most of them. The others are reconstructed, and the error of each is
measured in its own intensities, relative to its median. Then gain, offset and a smooth field of the
scans are changed, and their latents compared with those of the originals.

    python -m examples.raw.hippocampus FOLDER --options "--scale robust --intensity smooth"
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.loadsave import save
from nibabel.nifti1 import Nifti1Image, load
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.storage.tables import read_latents

N_FITTED, N_MODES = 28, 6
_EVERY = 3  # file is held out, as long as enough are left


def split(files: Sequence[Path], n_fitted: int = N_FITTED) -> tuple[list[Path], list[Path]]:
    """Return files to fit, and others: every third of the sorted ones, up to what is needed."""
    others = list(files[_EVERY - 1 :: _EVERY])[: len(files) - n_fitted]
    fitted = [path for path in files if path not in others]
    return fitted[:n_fitted], others + fitted[n_fitted:]


def relative_errors(model: ShapeAppearanceModel, files: Sequence[Path]) -> NDArray[np.float64]:
    """Return the root mean squared error of each reconstruction, over the median of the image."""
    images = model.open_files(list(files))
    explained = model.reconstruct(images)
    errors = []
    for n, path in enumerate(files):
        own = images.unscaled(n, images.read(slice(n, n + 1))[0])
        seen = ~np.isnan(own)
        wrong = explained[n][seen[0]] - own[seen]
        errors.append(np.sqrt(np.mean(wrong**2)) / np.median(np.asarray(load(path).dataobj)))
    return np.array(errors)


def disturbed(image: NDArray[Any], draws: np.random.Generator, bias: float) -> NDArray[np.float32]:
    """Return an image with another gain and offset, and a smooth field of 1 - bias to 1 + bias."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in image.shape), indexing="ij")
    field = sum(
        weight * np.cos(np.pi * (axis + 1) / 2 * order)
        for axis in axes
        for order, weight in zip((1, 2), draws.normal(size=2), strict=True)
    )
    field = 1 + bias * field / np.abs(field).max()
    gain = 2 ** draws.uniform(-1, 1)
    offset = draws.uniform(-0.2, 0.2) * np.median(image)
    return np.asarray(gain * field * image + offset, np.float32)


def stability(
    model: ShapeAppearanceModel, files: Sequence[Path], bias: float, folder: Path
) -> NDArray[np.float64]:
    """Return the correlation of each latent before and after scans are disturbed."""
    draws, changed = np.random.default_rng(0), []
    for path in files:
        scan = load(path)
        voxels = disturbed(np.asarray(scan.dataobj, np.float64), draws, bias)
        changed.append(folder / path.name)
        save(Nifti1Image(voxels, scan.affine), changed[-1])
    before, after = (model.transform(model.open_files(list(some))) for some in (files, changed))
    return np.array([np.corrcoef(*pair)[0, 1] for pair in zip(before.T, after.T, strict=True)])


def measure(files: Sequence[Path], options: Sequence[str], n_iter: int) -> dict[str, Any]:
    """Fit a model by the command line, and return what was measured."""
    fitted, others = split(files)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.safetensors"
        started = time.perf_counter()
        command = ["fit", *map(str, fitted), "-o", str(place), "-k", str(N_MODES)]
        command += ["--iterations", str(n_iter), *options, "--quiet"]
        subprocess.run([sys.executable, "-m", "anamorph", *command], check=True)
        seconds = time.perf_counter() - started
        model = ShapeAppearanceModel.load(place)
        _, latents = read_latents(place.with_suffix(".latents.tsv"), N_MODES)
        errors = relative_errors(model, others)
        return {
            "options": " ".join(options),
            "seconds": round(seconds),
            "held_out": round(float(errors.mean()), 4),
            "worst": round(float(errors.max()), 4),
            "fitted": round(float(relative_errors(model, fitted).mean()), 4),
            "largest_share_of_a_mode": round(
                float((latents**2 / (latents**2).sum(axis=0)).max()), 3
            ),
            "gain_and_offset": round(float(stability(model, others, 0.0, Path(folder)).min()), 4),
            "and_field": round(float(stability(model, others, 0.2, Path(folder)).min()), 4),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, for each set of options that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with .nii.gz files")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--options",
        action="append",
        help="options of 'anamorph fit', in quotes; may be given several times",
    )
    given = parser.parse_args(arguments)
    files = sorted(given.folder.glob("*.nii.gz"))
    for options in given.options or ["--scale robust --intensity smooth"]:
        print(json.dumps(measure(files, shlex.split(options), given.iterations)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
