"""Animations: images along a mode, back and forth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from anamorph.estimator import ShapeAppearanceModel
from anamorph.model.checks import check_integer
from anamorph.plots import panels
from anamorph.plots.rendering import Limits


def save_animation(
    model: ShapeAppearanceModel,
    mode: int,
    path: str | os.PathLike[str],
    *,
    deviation: float = 3.0,
    n_steps: int = 13,
    frames_per_second: int = 12,
    part: str = "both",
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
) -> None:
    """Write a GIF of the images along a mode, back and forth.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    mode : int
        Number of the latent, from 0.
    path : path
        Ends in .gif.
    deviation : float
        Largest deviation of the latent to either side, in standard deviations; 3 by default.
    n_steps : int
        Images from one side to the other; the GIF has ``2 * n_steps - 2`` frames; 13 by default.
    frames_per_second : int
        12 by default.
    part : {"both", "shape", "appearance"}
        What the latent changes; "both" by default.
    limits, voxel
        As in `plot_fits`.
    """
    if Path(path).suffix.lower() != ".gif":
        raise ValueError(f"path must end in .gif, got {os.fspath(path)!r}")
    check_integer("n_steps", n_steps, 2)
    positions = np.linspace(-deviation, deviation, n_steps)
    images = panels.along_mode(model, mode, positions, part)
    frame = panels.model_frame(model, voxel)
    palette = panels.model_palette(model, panels.mean_image(model), limits)
    width, height = panels.panel_size(frame, 3.0)
    figure = Figure((max(width, 2.5), height + 0.4), layout="compressed")
    axes = figure.subplots()
    writer = PillowWriter(fps=frames_per_second)
    with writer.saving(figure, os.fspath(path), dpi=100):
        for step in (*range(n_steps), *range(n_steps - 2, 0, -1)):
            axes.clear()
            frame.draw(axes, palette.rgb(images[step]))
            axes.set_title(f"mode {mode + 1} at {panels.signed(positions[step], '.1f')} s.d.")
            writer.grab_frame()
