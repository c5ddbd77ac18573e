"""Pictures of numbers: latents with labels, and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.validation import best_iteration
from anamorph.model.checks import check_integer
from anamorph.plots.notebooks import ShownFigure
from anamorph.plots.panels import AnyFigure, axes_or_new
from anamorph.plots.rendering import BACKGROUND, HUES, MISSING

_MOST_CATEGORIES = 10  # numbers with more different values are a quantity
# Okabe and Ito's colours, in an order for a white background.
_CATEGORY_COLOURS = (HUES[4], HUES[0], HUES[2], MISSING, HUES[1], HUES[5], BACKGROUND, HUES[3])
_MARKERS = "os^DvP*X"
_SMALL = 7  # points squared, of points in small panels
_NO_LABEL = ("", "n/a", "nan", "None")


def plot_latents(
    latents: ArrayLike,
    labels: ArrayLike | None = None,
    dims: tuple[int, int] = (0, 1),
    *,
    label_name: str | None = None,
    has_key: bool = True,
    unit: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw two latents of every image, coloured by label.

    Parameters
    ----------
    latents : array of shape (N, K)
    labels : N labels, optional
        Texts, truth values or numbers; none by default. Numbers with more than ten different
        values are a quantity and get a colour bar; other labels are categories and get a legend.
        Images whose label is NaN, None, empty or "n/a" are drawn in grey.
    dims : pair of int
        Numbers of the two latents, from 0; (0, 1) by default.
    label_name : str, optional
        Title of the legend or colour bar; none by default.
    has_key : bool
        Whether to draw the legend or colour bar; True by default.
    unit : str, optional
        Of the latents, e.g. "s.d." after division by standard deviations; none by default.
    axes : Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    Axes
    """
    points = np.asarray(latents, np.float64)
    if points.ndim != 2:
        raise ValueError(f"latents must have shape (N, K), got {points.shape}")
    if len(dims) != 2:
        raise ValueError(f"dims must be a pair, got {dims!r}")
    for dim in dims:
        check_integer("a dim", dim, 0, points.shape[1] - 1)
    axes = axes_or_new(axes, (6.0, 4.5))
    points = points[:, list(dims)]
    if labels is None:
        axes.scatter(points[:, 0], points[:, 1], s=18, color=HUES[4], linewidths=0)
    else:
        names = np.asarray(labels)
        if names.shape != (len(points),):
            raise ValueError(f"labels must be {len(points)}, one for each image, got {names.shape}")
        _scatter_labelled(axes, points, names)
        if has_key:
            _draw_key(axes, label_name)
    axes.set(xlabel=_name_latent(dims[0], unit), ylabel=_name_latent(dims[1], unit))
    return axes


def plot_latent_pairs(
    latents: ArrayLike,
    labels: ArrayLike | None = None,
    dims: Sequence[int] = (0, 1, 2, 3),
    *,
    unit: str | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw the histogram of each of a few latents, and a scatter plot of each pair.

    Parameters
    ----------
    latents : array of shape (N, K)
    labels : N labels, optional
        As in `plot_latents`, whose legend explains the colours; here there is no legend.
    dims : sequence of int
        Numbers of the latents, from 0; the first four by default.
    unit : str, optional
        As in `plot_latents`.
    figure : Figure or SubFigure, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Figure or SubFigure
        Histograms along the diagonal, and pairs below it.
    """
    points = np.asarray(latents, np.float64)
    n_dims = len(dims)
    if figure is None:
        figure = ShownFigure((1.8 * n_dims, 1.8 * n_dims), layout="constrained")
    panels = figure.subplots(n_dims, n_dims, squeeze=False, sharex="col")
    for (row, column), axes in np.ndenumerate(panels):
        if column > row:
            axes.set_axis_off()
        elif column == row:
            axes.hist(points[:, dims[row]], bins="auto", color=HUES[4], alpha=0.7)
            axes.set_yticks([])
        else:
            plot_latents(points, labels, (dims[column], dims[row]), has_key=False, axes=axes)
            for group in axes.collections:
                group.set_sizes([_SMALL])
        axes.set(xlabel="", ylabel="")
        axes.tick_params(labelsize="x-small")
        if column == 0:
            axes.set_ylabel(_name_latent(dims[row], unit))
        if row == n_dims - 1:
            axes.set_xlabel(_name_latent(dims[column], unit))
    return figure


def plot_objective(
    objective: ShapeAppearanceModel | Sequence[float], *, axes: Axes | None = None
) -> Axes:
    """Draw the objective after each iteration of a fit.

    Parameters
    ----------
    objective : ShapeAppearanceModel, or sequence of float
        A fitted model, or values after each iteration. Where images were held out from the fit of
        a model, their evidence is drawn as well, with a mark at its best; where it was fitted on
        several grids, whose objectives cannot be compared, the line is broken between them.
    axes : Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    Axes
    """
    if isinstance(objective, ShapeAppearanceModel):
        check_is_fitted(objective, "mean_")
        begins = objective.origin_.level_begins
        validation, objective = objective.validation_, objective.objective_
    else:
        validation, begins = [], (0,)
    values = np.asarray(objective, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"objective must be a list of numbers, got shape {values.shape}")
    axes = axes_or_new(axes, (5.5, 3.5))
    numbers = np.arange(1, len(values) + 1)
    for begin, end in pairwise([*begins, len(values)]):
        axes.plot(numbers[begin:end], values[begin:end], "o-", color=HUES[4], markersize=4)
    for begin in begins[1:]:
        axes.axvline(begin + 0.5, color="lightgrey", linestyle="--")
    axes.set(xlabel="iteration", ylabel="objective (approximate log evidence)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.ticklabel_format(axis="y", useOffset=False)
    if validation and (best := best_iteration(validation)) is not None:
        _draw_validation(axes, validation, best)
    return axes


def _draw_validation(axes: Axes, evidence: Sequence[float], best: int) -> None:
    """Draw the evidence of held-out images on an axis of its own, and mark its best."""
    beside = axes.twinx()
    numbers = np.arange(1, len(evidence) + 1)
    beside.plot(numbers, evidence, "s--", color=HUES[1], markersize=4)
    label = f"best after iteration {best}"
    beside.plot([best], [evidence[best - 1]], "o", mfc="none", mec="black", ms=10, label=label)
    beside.set_ylabel("log evidence of a held-out image", color=HUES[1])
    beside.ticklabel_format(axis="y", useOffset=False)
    beside.legend(loc="lower right", frameon=False)


def _name_latent(dim: int, unit: str | None) -> str:
    return f"latent {dim + 1}" + (f" ({unit})" if unit else "")


def _scatter_labelled(axes: Axes, points: Array, labels: NDArray[Any]) -> None:
    is_missing = np.isin(labels.astype(str), _NO_LABEL)
    if is_missing.any():
        across, along = points[is_missing].T
        axes.scatter(across, along, s=14, color="lightgrey", label="no label")
    points, labels = points[~is_missing], np.array(labels[~is_missing].tolist())
    is_number = labels.dtype.kind in "iuf"
    if is_number and len(np.unique(labels)) > _MOST_CATEGORIES:
        across, along = points.T
        axes.scatter(across, along, s=18, c=labels, cmap="viridis", linewidths=0)
    else:
        _scatter_categories(axes, points, labels)


def _scatter_categories(axes: Axes, points: Array, labels: NDArray[Any]) -> None:
    for n, category in enumerate(np.unique(labels)):
        across, along = points[labels == category].T
        n_round, n_colour = divmod(n, len(_CATEGORY_COLOURS))
        axes.scatter(
            across,
            along,
            s=24,
            color=_CATEGORY_COLOURS[n_colour],
            marker=_MARKERS[n_round % len(_MARKERS)],
            edgecolors="grey",
            linewidths=0.4,
            label=str(category),
        )


def _draw_key(axes: Axes, label_name: str | None) -> None:
    """Draw the colour bar of a quantity, or the legend of categories."""
    shown = axes.collections[-1]
    handles, _ = axes.get_legend_handles_labels()
    if shown.get_array() is not None:
        bar = axes.figure.colorbar(shown, ax=axes)
        bar.set_label(label_name or "", parse_math=False)
        if handles:
            axes.legend()
        return
    legend = axes.legend(
        title=label_name,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        ncols=-(-len(handles) // 20) or 1,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)  # a $ in a label is no formula
