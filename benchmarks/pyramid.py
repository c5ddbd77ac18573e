"""Coarse to fine against the finest grid alone: evidence and processor time of whole fits.

Faces, slices of brains and label maps of hippocampi are read from a folder that holds them as .npz
files; without one, label maps that are drawn here take their place. Objectives of two fits do not
compare, since they add up gains from where each grid began: the evidence of the images does, and
better still that of images which took no part. A fit that knows its own images better may know
others worse. Through grids gradients of the shape basis are exact; alone they are the paper's.

    python -m benchmarks.pyramid FOLDER              # all three, 20 iterations
    python -m benchmarks.pyramid FOLDER --images 40  # of each, to be quick
    python -m benchmarks.pyramid FOLDER --images 40 --held-out 24
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from benchmarks.simulate import label_volume


def faces(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return photographs in colour, from 0 to 1."""
    return np.load(folder / "faces_london_128x96.npz")["x"], {"channel_axis": -1}


def slices(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return probabilities of grey matter, white matter and what is neither."""
    file = np.load(folder / "oasis200_slice16_2mm_104x88.npz")
    maps = np.stack([file["gm"], file["wm"]], axis=1).astype(np.float32) / 255
    rest = np.clip(1 - maps.sum(axis=1, keepdims=True), 0, 1)
    classes = np.concatenate([maps, rest], axis=1)
    classes /= classes.sum(axis=1, keepdims=True)
    return classes, {"likelihood": "categorical", "channel_axis": 1, "voxel_size": (2.0, 2.0)}


def hippocampi(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return label maps of 48^3 voxels."""
    labels = np.load(folder / "hippocampus_labels_48x64x48.npz")["labels"]
    return labels[:, :, 8:56], {"likelihood": "categorical"}


def volumes(_: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return label maps that are drawn here."""
    drawn = [label_volume((48, 48, 48), seed) for seed in range(24)]
    return np.stack(drawn), {"likelihood": "categorical"}


def main() -> None:
    """Print a line for each kind of images, and one more for each grid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="with the files; none: drawn images")
    parser.add_argument("--images", type=int, default=None, help="at most so many; all by default")
    parser.add_argument("--held-out", type=int, default=0, help="of the others, to score as well")
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--levels", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="faces, slices, hippocampi or volumes")
    asked = parser.parse_args()
    kinds = (volumes,) if asked.folder is None else (faces, slices, hippocampi)
    print("Evidence and processor time of fits, coarse to fine against the finest grid alone")
    for kind in kinds:
        if asked.only in (None, kind.__name__):
            images, options = kind(asked.folder)
            some = images[: asked.images]
            others = images[len(some) :][: asked.held_out]
            compare(kind.__name__, some, others, options, asked)


def compare(
    name: str,
    images: np.ndarray,
    others: np.ndarray,
    options: dict[str, Any],
    asked: argparse.Namespace,
) -> None:
    """Fit both, and print how they end."""
    levels = asked.levels if asked.levels == "auto" else int(asked.levels)
    options |= {"n_components": asked.components, "device": asked.device}
    warm_up = {**options, "n_iter": 9, "levels": levels, "n_components": 2}
    ShapeAppearanceModel(**warm_up).fit(images[:4])  # compiles kernels
    found = {}
    for label, count in (("alone", 1), ("coarse to fine", levels)):
        model = ShapeAppearanceModel(**options, n_iter=asked.iterations, levels=count)
        started = time.process_time(), time.perf_counter()
        model.fit(images)
        processor, wall = time.process_time() - started[0], time.perf_counter() - started[1]
        found[label] = model, processor, wall
    alone, through = found["alone"], found["coarse to fine"]
    before, after = (model.score(images) for model, *_ in (alone, through))
    shape = "x".join(map(str, through[0].settings_.space))
    print(
        f"  {len(images)} {name} of {shape}, K = {asked.components}: evidence per image "
        f"{before:.6g} alone, {after:.6g} coarse to fine: {after - before:+.4g} (not lower)"
    )
    if len(others):
        before, after = (model.score(others) for model, *_ in (alone, through))
        print(
            f"    of {len(others)} others: {before:.6g} alone, {after:.6g} coarse to fine: "
            f"{after - before:+.4g}"
        )
    print(
        f"    time {through[1] / alone[1]:.2f} of {alone[1]:.0f} s on processors, "
        f"{through[2] / alone[2]:.2f} of {alone[2]:.0f} s on the clock (0.5)"
    )
    for label, (model, processor, _) in found.items():
        begins = (*model.origin_.level_begins, model.n_iter_)
        seconds = model.origin_.seconds
        shares = [
            f"{last - first} iterations in {sum(seconds[first:last]):.1f} s"
            for first, last in pairwise(begins)
        ]
        rest = f"start and end in {max(0, found[label][2] - sum(seconds)):.1f} s"
        print(f"    {label}: {', '.join(shares)}, {rest} ({processor:.0f} s on processors)")


if __name__ == "__main__":
    main()
