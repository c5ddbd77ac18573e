"""Figures of the report alone: the mean, the shares of modes, warps, times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter

from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.geometry import jacobian_determinant
from anamorph.plots import panels, plot_deformation, plot_log_jacobian
from anamorph.plots.deformations import jacobian_label
from anamorph.plots.rendering import HUES, MISSING, background_class
from anamorph.report.measures import ModeShares

Voxel = tuple[int, ...] | None

BLUE, ORANGE, GREEN = HUES[4], HUES[5], HUES[2]
#: Unobtrusive lines and letters.
STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": "#8a949c",
    "axes.labelcolor": "#333a40",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#5b6670",
    "ytick.color": "#5b6670",
    "axes.axisbelow": True,
}
_MOST_BARS = 40
_PALE = "#e4e7ea"
_GRID_LINES = 14  # along the longest axis


def find_meeting_point(model: ShapeAppearanceModel) -> Voxel:
    """Return where slices through volumes meet: the centre of mass of the foreground.

    None means the centre of the grid: for planes, and where there is no background class.
    """
    if not model.settings_.likelihood.holds_classes or len(model.settings_.space) == 2:
        return None
    (mean,) = panels.mean_image(model)
    inside = 1 - mean[background_class(mean[None])].astype(np.float64)
    if not inside.sum() > 0:
        return None
    centre = [(i * inside).sum() / inside.sum() for i in np.indices(inside.shape)]
    return tuple(round(float(c)) for c in centre)


def mean_figure(model: ShapeAppearanceModel, voxel: Voxel) -> Figure:
    """Draw the mean in a large panel."""
    frame = panels.model_frame(model, voxel)
    width, height = panels.panel_size(frame, 4.2 if len(frame.views) > 1 else 2.6)
    n_keys = len(model.mean_) if model.settings_.likelihood.holds_classes else 0
    width = max(width, 3.0 if n_keys else 0.0)
    n_rows = -(-n_keys // panels.keys_per_row(width, n_keys))
    figure = Figure((width, height + 0.12 * bool(n_keys) + 0.2 * n_rows))
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    mean = panels.mean_image(model)
    panels.draw_rows(model, [("", mean)], None, mean, None, voxel, figure)
    return figure


def shares_figure(shares: ModeShares, shows_parts: bool) -> Figure:
    """Draw the share of variance of each mode; `shows_parts` adds shape and appearance alone."""
    n_modes = min(len(shares.together), _MOST_BARS)
    figure = Figure((max(4.5, min(8.5, 1.5 + 0.42 * n_modes)), 2.9), layout="constrained")
    axes = figure.subplots()
    modes, order = np.arange(1, n_modes + 1), shares.order[:n_modes]
    if shows_parts:
        parts = (
            ("together", shares.together, BLUE),
            ("shape alone", shares.shape, ORANGE),
            ("appearance alone", shares.appearance, GREEN),
        )
        for n, (name, values, colour) in enumerate(parts):
            axes.bar(modes + 0.27 * (n - 1), values[order], 0.25, label=name, color=colour)
        figure.legend(loc="outside upper right", ncols=3, frameon=False)
    else:
        axes.bar(modes, shares.together[order], 0.7, color=BLUE)
    axes.set(xlabel="mode", ylabel="share of variance", xlim=(0.4, n_modes + 0.6))
    axes.set_xticks(modes, [str(mode + 1) for mode in order], fontsize="small")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(axis="y", color=_PALE)
    return figure


def warps_figure(
    model: ShapeAppearanceModel,
    latents: Array,
    titles: Sequence[str],
    observed: Array | None,
    voxel: Voxel,
) -> Figure:
    """Draw images, the deformed grid of the mean over each, and the growth of each voxel."""
    displacement = model.displacement(latents)
    images = model.expected_images(latents) if observed is None else observed
    frame, palette = panels.model_frame(model, voxel), panels.model_palette(model, images)
    grid: dict[str, Any] = {
        "voxel_size": model.settings_.voxel_size,
        "voxel": voxel,
        "affine": model.origin_.affine,
    }
    spacing = max(2, round(max(model.settings_.space) / _GRID_LINES))
    width, height = panels.panel_size(frame, 2.1)
    figure = Figure((len(latents) * (width + 0.1) + 1.9, 3 * (height + 0.1) + 0.3))
    figure.set_layout_engine(
        ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04, wspace=0, hspace=0, compress=True)
    )
    cells = figure.subplots(3, len(latents), squeeze=False)
    limit = _find_jacobian_limit(displacement)
    for n, (top, middle, bottom) in enumerate(cells.T):
        frame.draw(top, palette.rgb(images[n]))
        top.set_title(titles[n], fontsize="medium", parse_math=False)
        frame.draw(middle, 0.75 * palette.rgb(images[n]))  # darker than the lines
        plot_deformation(
            displacement[n], over="image", spacing=spacing, colour=MISSING, axes=middle, **grid
        )
        plot_log_jacobian(
            displacement[n], of_image=True, limit=limit, has_colour_bar=False, axes=bottom, **grid
        )
    frame.name_sides(cells[0, 0])
    rows = ("image" if observed is None else "data", "warp", "larger (red) or\nsmaller (blue)")
    for name, axes in zip(rows, cells[:, 0], strict=True):
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    figure.colorbar(
        cells[2, -1].images[0], ax=cells[2].tolist(), label=jacobian_label(True), shrink=0.9
    )
    return figure


def _find_jacobian_limit(displacement: Array) -> float:
    """Return the value at the ends of the colour bar of all warps."""
    determinant = jacobian_determinant(displacement).astype(np.float64)
    logarithm = np.abs(np.log(determinant[determinant > 0]))
    return float(logarithm.max(initial=0.05))


def times_figure(seconds: Sequence[float]) -> Figure:
    """Draw the time of each iteration."""
    figure = Figure((5.5, 2.3), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(1, len(seconds) + 1), seconds, 0.7, color=BLUE)
    axes.set(xlabel="iteration", ylabel="seconds")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=_PALE)
    return figure
