"""Pictures of numbers: latents with labels, and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from anamorph.plots.model_images import check_integer
from anamorph.plots.panels import axes_or_new
from anamorph.plots.rendering import BACKGROUND, HUES, MISSING

Array = NDArray[np.floating]
Images = NDArray[Any] | Sequence[Any]
_MOST_CATEGORIES = 10  # numbers with more different values than this are a quantity
# Okabe and Ito's again, in an order that suits a white background.
_CATEGORY_COLOURS = (HUES[4], HUES[0], HUES[2], MISSING, HUES[1], HUES[5], BACKGROUND, HUES[3])
_MARKERS = "os^DvP*X"
_NO_LABEL = ("", "n/a", "nan", "None")


def plot_latents(
    latents: ArrayLike,
    labels: ArrayLike | None = None,
    dims: tuple[int, int] = (0, 1),
    *,
    label_name: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw two latents of every image, coloured by label.

    Parameters
    ----------
    latents : array of shape (N, K)
    labels : N labels, optional
        Texts, truth values or numbers. Numbers with more than ten different values are a
        quantity and get a colour bar, others are categories and get a legend. Images whose label
        is NaN, None, empty or "n/a" are drawn in grey.
    dims : pair of int
        Which latents.
    label_name : str, optional
        Title of the legend or colour bar.
    axes : Axes, optional
        Where to draw.

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
        _scatter_labelled(axes, points, _checked_labels(labels, len(points)), label_name)
    axes.set(xlabel=f"latent {dims[0]}", ylabel=f"latent {dims[1]}")
    return axes


def plot_objective(objective: Sequence[float], *, axes: Axes | None = None) -> Axes:
    """Draw how the objective rose during a fit.

    Parameters
    ----------
    objective : sequence of float
        After each iteration, e.g. ``model.objective_``.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
    """
    values = np.asarray(objective, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"objective must be a list of numbers, got shape {values.shape}")
    axes = axes_or_new(axes, (5.5, 3.5))
    axes.plot(np.arange(1, len(values) + 1), values, "o-", color=HUES[4], markersize=4)
    axes.set(xlabel="iteration", ylabel="objective (approximate log evidence)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.ticklabel_format(axis="y", useOffset=False)
    return axes


def _scatter_labelled(
    axes: Axes, points: Array, labels: NDArray[Any], label_name: str | None
) -> None:
    is_missing = np.isin(labels.astype(str), _NO_LABEL)
    if is_missing.any():
        across, along = points[is_missing].T
        axes.scatter(across, along, s=14, color="lightgrey", label="no label")
    points, labels = points[~is_missing], np.array(labels[~is_missing].tolist())
    is_number = labels.dtype.kind in "iuf"
    if is_number and len(np.unique(labels)) > _MOST_CATEGORIES:
        across, along = points.T
        shown = axes.scatter(across, along, s=18, c=labels, cmap="viridis", linewidths=0)
        axes.figure.colorbar(shown, ax=axes, label=label_name or "")
        if is_missing.any():
            axes.legend()
    else:
        _scatter_categories(axes, points, labels, label_name)


def _scatter_categories(
    axes: Axes, points: Array, labels: NDArray[Any], label_name: str | None
) -> None:
    categories = np.unique(labels)
    for n, category in enumerate(categories):
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
    axes.legend(
        title=label_name,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        ncols=-(-len(categories) // 20) or 1,
    )


def _checked_labels(labels: ArrayLike, n_points: int) -> NDArray[Any]:
    checked = np.asarray(labels)
    if checked.shape != (n_points,):
        raise ValueError(f"labels must be {n_points}, one for each image, got {checked.shape}")
    return checked
