"""Pictures of a comparison: how well each layout predicts hidden voxels."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from anamorph.arrays.typing import Float64Array
from anamorph.compare.layouts import Comparison
from anamorph.plots.notebooks import ShownFigure
from anamorph.plots.panels import AnyFigure
from anamorph.plots.rendering import HUES

_HALF_WIDTH = 0.3  # of a column of dots, where the distance of columns is 1


def plot_comparison(comparison: Comparison, *, figure: AnyFigure | None = None) -> AnyFigure:
    """Draw the log-likelihood and the squared error of hidden voxels, a dot for every image.

    Bars are means over images. The label of each layout but the first gives the difference of its
    mean from the first, with the standard error of the differences image by image.

    Parameters
    ----------
    comparison : Comparison
        Returned by `compare_layouts`.
    figure : Figure or SubFigure, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Figure or SubFigure
    """
    is_known = comparison.n_hidden > 0
    if not is_known.any():
        raise ValueError("comparison has no hidden voxel whose truth is known: nothing to draw")
    if figure is None:
        width = 2 * (1.0 + 1.15 * len(comparison.layouts))
        figure = ShownFigure((width, 4.0), layout="constrained")
    scores = {
        "log-likelihood per hidden voxel": comparison.log_likelihood,
        "squared error per hidden voxel": comparison.squared_error,
    }
    for axes, (title, values) in zip(figure.subplots(1, 2), scores.items(), strict=True):
        formula = {
            layout: values[layout][is_known] / comparison.n_hidden[is_known]
            for layout in comparison.layouts
        }
        _draw_columns(axes, formula)
        axes.set_title(title, fontsize="medium")
    return figure


def _draw_columns(axes: Axes, values: dict[str, Float64Array]) -> None:
    """Draw a column of dots and a bar at their mean for each name."""
    first = next(iter(values.values()))
    labels = []
    for position, (name, column) in enumerate(values.items()):
        across = position + _HALF_WIDTH * np.linspace(-1, 1, len(column))
        axes.scatter(across, column, s=8, color=HUES[4], alpha=0.5, linewidths=0)
        mean = column.mean()
        axes.hlines(mean, position - _HALF_WIDTH, position + _HALF_WIDTH, HUES[5], linewidth=2.5)
        labels.append(
            f"{name}\n{mean:.4g}"
            if position == 0
            else f"{name}\n{_format_difference(column - first)}"
        )
    axes.set_xticks(range(len(values)), labels)
    if len(values) > 1:
        axes.set_xlabel(f"mean; differences from {next(iter(values))}, ± standard error")
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)


def _format_difference(differences: Float64Array) -> str:
    """Return the mean of differences and its standard error, in words."""
    mean = differences.mean()
    if len(differences) < 2:
        return f"{mean:+.2g}"
    return f"{mean:+.2g}\n± {differences.std(ddof=1) / np.sqrt(len(differences)):.1g}"
