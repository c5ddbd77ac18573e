"""Landmarks of real faces: how close together modes and residual warps bring them.

    python -m examples.warps.faces --data FOLDER

A model of photographs of faces is fitted without landmarks. Then 24 landmarks of each face are
brought into its template: pupils, corners of eyes, brows, nose, mouth, chin and outline, which a
detector (the face mesh of mediapipe 0.10.21) found in pictures enlarged six times; they are in
`faces_landmarks.csv`, in pixels. The table tells how far landmarks are from their mean, relative to
before: as they are, and with a similarity transform removed from both.

Faces: Face Research Lab London Set (DeBruine and Jones, 2017), CC BY 4.0.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from anamorph import ShapeAppearanceModel, preset
from examples.warps.landmarks import Array, spreads, spreads_by

_LANDMARKS = Path(__file__).with_name("faces_landmarks.csv")


def faces(folder: Path, expression: str) -> tuple[Array, Array]:
    """Return faces of an expression (N, rows, columns, 3) from 0 to 1, and landmarks (N, M, 2)."""
    with np.load(folder / "faces_london_128x96.npz") as data:
        which = np.flatnonzero(data["expression"] == expression)
        images = data["x"][which].astype(np.float32) / 255
    return images, landmarks(expression)


def landmarks(expression: str) -> Array:
    """Return the landmarks of faces of an expression, (N, M, 2), rows and columns in pixels."""
    with _LANDMARKS.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row[1] == expression]
    return np.array([row[2:] for row in rows], float).reshape(len(rows), -1, 2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--expression", choices=("neutral", "smiling"), default="neutral")
    parser.add_argument(
        "--components", type=int, nargs="+", default=[64], help="two: for appearance, and for shape"
    )
    parser.add_argument("--residual", choices=("none", "after", "inside"), default="none")
    parser.add_argument("--at-its-word", action="store_true", help="voxels: decimation=1")
    options = parser.parse_args()
    images, marks = faces(options.data, options.expression)
    settings = preset("faces") | {"channel_axis": -1, "residual": options.residual}
    if options.at_its_word:
        settings["decimation"] = 1.0
    if len(options.components) == 1:
        settings["n_components"] = options.components[0]
    else:
        settings |= {"latents": "separate", "n_components": tuple(options.components)}
    model = ShapeAppearanceModel(random_state=0, **settings).fit(images)
    found = {"modes, latents of the fit": spreads_by(model, model.latents_, marks)}
    for name, (plain, similar) in (found | spreads(model, images, marks)).items():
        print(f"{name}: {plain:.3f}, without similarity {similar:.3f}", flush=True)


if __name__ == "__main__":
    main()
