"""Pictures of a model: fits, modes, samples, latents and deformations, as matplotlib figures.

Functions that draw many images take an optional `figure` (or subfigure) to draw into, and return
it; those that draw one thing take and return `axes`, whose ``.figure`` can be saved. None of them
needs a screen or pyplot:

>>> plot_modes(model).savefig("modes.png")  # doctest: +SKIP

Of volumes three orthogonal slices are shown; `anamorph.rendering` says how, and in what colours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph.geometry import jacobian_determinant
from anamorph.latents import mode_standard_deviations
from anamorph.model import ShapeAppearanceModel
from anamorph.rendering import (
    BACKGROUND,
    HUES,
    MISSING,
    Frame,
    Limits,
    View,
    class_colours,
    frame_of,
    palette_of,
)

Array = NDArray[np.floating]
AnyFigure = Figure | SubFigure
Images = NDArray[Any] | Sequence[Any]
Row = tuple[str, Array]  # its name, and images (n, C, *space)

_MOST_IMAGES = 8  # that are shown when nobody says which
_MOST_MODES = 5
_MOST_CATEGORIES = 10  # numbers with more different values than this are a quantity
# Okabe and Ito's again, in an order that suits a white background.
_CATEGORY_COLOURS = (HUES[4], HUES[0], HUES[2], MISSING, HUES[1], HUES[5], BACKGROUND, HUES[3])
_MARKERS = "os^DvP*X"
_NO_LABEL = ("", "n/a", "nan", "None")
_JACOBIAN_COLOURS = colormaps["RdBu_r"].with_extremes(bad=MISSING)


# ---- images


def plot_fits(
    model: ShapeAppearanceModel,
    images: Images,
    latents: ArrayLike | None = None,
    indices: Iterable[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw images, and below them what the model makes of them, by shape and by appearance.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted one.
    images : array of shape (N, *space), or with channels; list of such arrays or of .npy files
        As for ``model.transform``; NaN is missing.
    latents : array of shape (N, K), optional
        Of all N images; found from those that are shown by default.
    indices : int, optional
        Which images to show; the first eight by default.
    names : N strings, optional
        Of all N images; their numbers by default.
    limits : pair of float, optional
        Values to show as black and as white.
    voxel : 3 int, optional
        Where the slices through volumes meet; the centre by default.
    figure : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
        Four rows, and a column per image.
    """
    chosen = _checked_indices(indices, len(images))
    some = _take(images, chosen)
    data = _observed(model, some)
    if latents is None:
        codes: Array = model.transform(some)
    else:
        codes = _checked_latents(model, latents, len(images))[chosen]
    rows = [
        ("data", data),
        ("shape and\nappearance", _expected(model, codes)),
        ("shape only", _expected(model, codes, "shape")),
        ("appearance\nonly", _expected(model, codes, "appearance")),
    ]
    return _draw_rows(model, rows, _titles(names, chosen, len(images)), data, limits, voxel, figure)


def plot_modes(
    model: ShapeAppearanceModel,
    modes: Iterable[int] | None = None,
    deviations: Sequence[float] = (-5, -3, -1, 1, 3, 5),
    *,
    part: str = "both",
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw what the image becomes as one latent at a time departs from zero.

    Parameters
    ----------
    model : ShapeAppearanceModel
    modes : int, optional
        Which latents; the first five by default.
    deviations : sequence of float
        How far each goes, in standard deviations of the prior N(0, A^-1).
    part : {"both", "shape", "appearance"}
        What of the mode to show.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        A row per mode, and a column per deviation.
    """
    check_is_fitted(model, "mean_")
    n_latents = len(model.latent_precision_)
    chosen = range(min(_MOST_MODES, n_latents)) if modes is None else list(modes)
    if not chosen or not len(deviations):
        raise ValueError("modes and deviations must not be empty")
    rows = [(f"mode {mode}", _along_mode(model, mode, deviations, part)) for mode in chosen]
    titles = [f"{_signed(deviation)} s.d." for deviation in deviations]
    return _draw_rows(model, rows, titles, _mean_image(model), limits, voxel, figure)


def plot_samples(
    model: ShapeAppearanceModel,
    n_pairs: int = 8,
    random_state: int | None = None,
    *,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw random images, each above the one whose latents are the opposite.

    Parameters
    ----------
    model : ShapeAppearanceModel
    n_pairs : int
        How many pairs; there are eight in a row.
    random_state : int, optional
        Seed of the latents, as for ``model.sample``.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
    """
    _check_integer("n_pairs", n_pairs, 1)
    _, latents = model.sample(n_pairs, random_state)
    rows = [
        (name, _expected(model, sign * latents[first : first + _MOST_IMAGES]))
        for first in range(0, n_pairs, _MOST_IMAGES)
        for name, sign in (("z", 1), ("\N{MINUS SIGN}z", -1))
    ]
    return _draw_rows(model, rows, None, _mean_image(model), limits, voxel, figure)


def plot_arithmetic(
    model: ShapeAppearanceModel,
    terms: Sequence[tuple[float, ArrayLike, str]],
    *,
    result: str = "result",
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw a sum of latents, as images of its terms and of what they add up to.

    Parameters
    ----------
    model : ShapeAppearanceModel
    terms : sequence of (weight, latents, name)
        Latents of shape (K,), e.g. ``[(1, z1, "smiling-1"), (-1, z2, "neutral-1"),
        (1, z3, "neutral-2")]``.
    result : str
        Name of the sum.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        One row: the terms, then their sum.
    """
    check_is_fitted(model, "mean_")
    if not terms:
        raise ValueError("terms must not be empty: give (weight, latents, name) of each")
    weights = np.array([weight for weight, _, _ in terms], np.float64)
    codes = _checked_latents(model, [np.asarray(z) for _, z, _ in terms], len(terms))
    images = _expected(model, np.concatenate([codes, (weights @ codes)[None]]))
    names = [*(name for *_, name in terms), result]
    figure = _draw_rows(model, [("", images)], names, _mean_image(model), limits, voxel, figure)
    signs = [*(_operator(weight, n == 0) for n, weight in enumerate(weights)), "="]
    for axes, sign in zip(figure.axes[-len(signs) :], signs, strict=True):
        axes.set_ylabel(sign, rotation=0, ha="right", va="center", fontsize="x-large")
    return figure


def plot_imputed(
    model: ShapeAppearanceModel,
    images: Images,
    indices: Iterable[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw images with missing voxels, and the same with what the model expects there.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images, indices, names, limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        Two rows, and a column per image.
    """
    chosen = _checked_indices(indices, len(images))
    some = _take(images, chosen)
    filled = _channels_first(model, model.impute(some))
    rows = [("observed", _observed(model, some)), ("filled in", filled)]
    keys = [Patch(color=MISSING, label="missing")]
    titles = _titles(names, chosen, len(images))
    return _draw_rows(model, rows, titles, filled, limits, voxel, figure, keys)


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
    """Write a GIF of a mode that goes back and forth.

    Parameters
    ----------
    model : ShapeAppearanceModel
    mode : int
        Which latent.
    path : path
        Ends in .gif.
    deviation : float
        How far the latent goes to either side, in standard deviations.
    n_steps : int
        Images from one side to the other; the GIF has ``2 * n_steps - 2`` frames.
    frames_per_second : int
    part : {"both", "shape", "appearance"}
    limits, voxel
        As for `plot_fits`.
    """
    if Path(path).suffix.lower() != ".gif":
        raise ValueError(f"path must end in .gif, got {os.fspath(path)!r}")
    _check_integer("n_steps", n_steps, 2)
    positions = np.linspace(-deviation, deviation, n_steps)
    images = _along_mode(model, mode, positions, part)
    frame, palette = _frame(model, voxel), palette_of(_mean_image(model), model.likelihood, limits)
    width, height = _panel_size(frame, 3.0)
    figure = Figure((max(width, 2.5), height + 0.4), layout="compressed")
    axes = figure.subplots()
    writer = PillowWriter(fps=frames_per_second)
    with writer.saving(figure, os.fspath(path), dpi=100):
        for step in (*range(n_steps), *range(n_steps - 2, 0, -1)):
            axes.clear()
            frame.draw(axes, palette.rgb(images[step]))
            axes.set_title(f"mode {mode} at {_signed(positions[step], '.1f')} s.d.")
            writer.grab_frame()


# ---- latents and objective


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
        _check_integer("a dim", dim, 0, points.shape[1] - 1)
    axes = _axes_or_new(axes, (6.0, 4.5))
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
    axes = _axes_or_new(axes, (5.5, 3.5))
    axes.plot(np.arange(1, len(values) + 1), values, "o-", color=HUES[4], markersize=4)
    axes.set(xlabel="iteration", ylabel="objective (approximate log evidence)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.ticklabel_format(axis="y", useOffset=False)
    return axes


# ---- deformations


def plot_deformation(
    displacement: ArrayLike,
    *,
    background: ArrayLike | None = None,
    likelihood: str = "gaussian",
    spacing: int | None = None,
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw the lines of a regular grid where psi = id + displacement carries them.

    An image reads the mean at psi, so the lines lie over the mean. For the lines that lie over
    the image, give ``anamorph.geometry.invert(displacement)``.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels. Of a volume, lines within each slice are drawn, as seen along the third axis.
    background : array of shape (*space) or (*space, C), optional
        Image to draw the lines over.
    likelihood : {"gaussian", "bernoulli", "categorical"}
        Of the background: whether its C channels are intensities or probabilities of classes.
    spacing : int, optional
        Voxels between lines; such that there are about 24 along the longest axis by default.
    voxel_size : 2 or 3 numbers, optional
        1 by default.
    voxel : 3 int, optional
        Where the slices through a volume meet; the centre by default.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
    """
    field = _checked_displacement(displacement)
    space = field.shape[1:]
    step = max(1, round(max(space) / 24)) if spacing is None else spacing
    _check_integer("spacing", step, 1)
    frame = frame_of(space, voxel_size, voxel)
    image = None if background is None else _checked_background(background, space)
    axes = _axes_or_new(axes, _panel_size(frame, 4.5))
    if image is not None:
        frame.draw(axes, palette_of(image[None], likelihood).rgb(image))
    for view in frame.views:
        lines = LineCollection(
            _carried_lines(view, field, step),
            colors=BACKGROUND if image is None else MISSING,  # which no image has
            linewidths=0.8,
        )
        left, right, low, high = view.extent
        window = Rectangle((left, low), right - left, high - low, transform=axes.transData)
        lines.set_clip_path(window)  # lines of one slice stay out of the next
        axes.add_collection(lines, autolim=False)
    frame.fit_axes(axes)
    return axes


def plot_log_jacobian(
    displacement: ArrayLike,
    *,
    limit: float | None = None,
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw log |D psi|: red where psi = id + displacement expands, blue where it contracts.

    An image reads the mean at psi: what is red is smaller in the image than in the mean.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels. Where it folds, and the logarithm does not exist, the colour is that of missing.
    limit : float, optional
        Value at the ends of the colour bar; the largest by default.
    voxel_size, voxel, axes
        As for `plot_deformation`.

    Returns
    -------
    Axes
    """
    if limit is not None and not limit > 0:
        raise ValueError(f"limit must be a positive number, got {limit!r}")
    field = _checked_displacement(displacement)
    determinant = jacobian_determinant(field).astype(np.float64)
    logarithm = np.full(determinant.shape, np.nan)
    np.log(determinant, out=logarithm, where=determinant > 0)
    frame = frame_of(field.shape[1:], voxel_size, voxel)
    highest = np.nanmax(np.abs(logarithm), initial=1e-3) if limit is None else limit
    axes = _axes_or_new(axes, _panel_size(frame, 4.5, 1.2))
    norm = Normalize(-highest, highest)
    first, *_ = frame.draw(axes, logarithm, _JACOBIAN_COLOURS, norm)
    axes.figure.colorbar(first, ax=axes, label=r"$\log\,|D\psi|$", shrink=0.8)
    return axes


# ---- panels


def _draw_rows(
    model: ShapeAppearanceModel,
    rows: Sequence[Row],
    titles: Sequence[str] | None,
    deciding: Array,
    limits: Limits | None,
    voxel: Sequence[int] | None,
    figure: AnyFigure | None,
    keys: Sequence[Patch] = (),
) -> AnyFigure:
    """Draw rows of images, with colours decided by the values of some of them."""
    frame, palette = _frame(model, voxel), palette_of(deciding, model.likelihood, limits)
    n_columns = max(len(images) for _, images in rows)
    keys = [*_class_keys(model), *keys]
    if figure is None:
        longest_line = max(len(line) for name, _ in rows for line in name.split("\n"))
        margins = (0.1 + 0.09 * longest_line, 0.3 * bool(titles) + 0.3 * bool(keys))
        figure = _figure_of_panels(frame, len(rows), n_columns, margins)
    panels = figure.subplots(len(rows), n_columns, squeeze=False)
    for (name, images), row in zip(rows, panels, strict=True):
        for axes in row[len(images) :]:
            axes.set_axis_off()
        for axes, image in zip(row, images, strict=False):
            frame.draw(axes, palette.rgb(image))
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axes, title in zip(panels[0], titles or (), strict=False):
        axes.set_title(title, fontsize="medium")
    if keys:
        figure.legend(
            handles=keys, loc="outside lower center", ncols=min(len(keys), 6), frameon=False
        )
    return figure


def _figure_of_panels(
    frame: Frame, n_rows: int, n_columns: int, margins: tuple[float, float]
) -> Figure:
    is_volume = len(frame.views) > 1
    pad = 0.08 if is_volume else 0.03  # inches; slices of one volume are closer than volumes
    width, height = _panel_size(frame, 1.9 if is_volume else 1.15)
    size = (n_columns * (width + 2 * pad) + margins[0], n_rows * (height + 2 * pad) + margins[1])
    engine = ConstrainedLayoutEngine(w_pad=pad, h_pad=pad, wspace=0, hspace=0, compress=True)
    return Figure(size, layout=engine)


def _class_keys(model: ShapeAppearanceModel) -> list[Patch]:
    if model.likelihood != "categorical":
        return []
    colours = class_colours(len(model.mean_))
    return [
        Patch(facecolor=tuple(colour), edgecolor="grey", label=f"class {c}")
        for c, colour in enumerate(colours)
    ]


def _frame(model: ShapeAppearanceModel, voxel: Sequence[int] | None) -> Frame:
    return frame_of(model.mean_.shape[1:], model.voxel_size, voxel)


def _panel_size(frame: Frame, longest: float, extra_width: float = 0.0) -> tuple[float, float]:
    """Return width and height, in inches, of a panel of the shape of a frame."""
    scale = longest / max(frame.size)
    return frame.size[0] * scale + extra_width, frame.size[1] * scale


def _axes_or_new(axes: Axes | None, size: tuple[float, float]) -> Axes:
    return Figure(size, layout="constrained").subplots() if axes is None else axes


# ---- images of a model, inside as (N, C, *space)


def _observed(model: ShapeAppearanceModel, images: Images) -> Array:
    """Return a user's images as the model sees them, NaN where missing."""
    checked = model._checked_images(images)
    return checked.read(slice(0, len(checked)))


def _expected(model: ShapeAppearanceModel, latents: Array, part: str = "both") -> Array:
    return _channels_first(model, model.inverse_transform(latents, part))


def _channels_first(model: ShapeAppearanceModel, images: Array) -> Array:
    """Undo what `ImageFormat.to_user` does."""
    layout = model._format
    if layout.channel_axis is not None:
        return np.moveaxis(images, layout.channel_axis, 1)
    return np.moveaxis(images, -1, 1) if layout.holds_labels else images[:, None]


def _along_mode(
    model: ShapeAppearanceModel, mode: int, deviations: Sequence[float] | Array, part: str
) -> Array:
    check_is_fitted(model, "mean_")
    n_latents = len(model.latent_precision_)
    _check_integer("a mode", mode, 0, n_latents - 1)
    latents = np.zeros((len(deviations), n_latents))
    latents[:, mode] = deviations
    latents *= mode_standard_deviations(model.latent_precision_)
    return _expected(model, latents, part)


def _mean_image(model: ShapeAppearanceModel) -> Array:
    """Return the image of z = 0, whose values decide on colours where there are no data."""
    return _expected(model, np.zeros((1, len(model.latent_precision_))))


def _take(images: Images, chosen: list[int]) -> Images:
    return images[chosen] if isinstance(images, np.ndarray) else [images[n] for n in chosen]


# ---- labels of points, lines of grids


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


def _carried_lines(view: View, field: Array, spacing: int) -> list[Array]:
    """Return grid lines of a slice where psi carries them, each (n_points, 2)."""
    moved = view.take(field)
    along, across = np.indices(moved.shape[1:])
    points = np.stack(
        view.place(across + moved[view.horizontal], along + moved[view.vertical]), axis=-1
    )
    rows, columns = (range(n % spacing // 2, n, spacing) for n in points.shape[:2])
    return [*(points[n] for n in rows), *(points[:, n] for n in columns)]


# ---- what is wrong with it


def _check_integer(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not lowest <= value <= (np.inf if highest is None else highest):  # type: ignore[operator]
        accepted = f">= {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{name} must be an integer {accepted}, got {value!r}")


def _checked_indices(indices: Iterable[int] | None, n_images: int) -> list[int]:
    chosen = list(range(min(_MOST_IMAGES, n_images)) if indices is None else indices)
    if not chosen:
        raise ValueError("no images to show: indices are empty")
    for index in chosen:
        _check_integer("an index", index, 0, n_images - 1)
    return chosen


def _checked_latents(model: ShapeAppearanceModel, latents: Any, n_rows: int) -> Array:
    check_is_fitted(model, "mean_")
    codes = [np.asarray(row, np.float64) for row in latents]
    n_latents = len(model.latent_precision_)
    wrong = [row.shape for row in codes if row.shape != (n_latents,)]
    if wrong or len(codes) != n_rows:
        raise ValueError(
            f"latents must be {n_rows} x {n_latents}, a row of K for each image, got "
            f"{len(codes)} rows" + (f", one of shape {wrong[0]}" if wrong else "")
        )
    return np.array(codes)


def _checked_labels(labels: ArrayLike, n_points: int) -> NDArray[Any]:
    checked = np.asarray(labels)
    if checked.shape != (n_points,):
        raise ValueError(f"labels must be {n_points}, one for each image, got {checked.shape}")
    return checked


def _checked_displacement(displacement: ArrayLike) -> Array:
    field = np.asarray(displacement, np.float32)
    if field.ndim not in (3, 4) or len(field) != field.ndim - 1:
        raise ValueError(
            f"displacement must have shape (2, ny, nx) or (3, nz, ny, nx), got {field.shape}"
        )
    return field


def _checked_background(background: ArrayLike, space: tuple[int, ...]) -> Array:
    """Return a background as (C, *space)."""
    image = np.asarray(background, np.float64)
    if image.shape[: len(space)] != space or image.ndim > len(space) + 1:
        raise ValueError(
            f"background must have the shape {space} of the displacement, perhaps with channels "
            f"last, got {image.shape}"
        )
    return image[None] if image.ndim == len(space) else np.moveaxis(image, -1, 0)


# ---- words


def _titles(names: Sequence[str] | None, chosen: list[int], n_images: int) -> list[str]:
    if names is None:
        return [f"image {n}" for n in chosen]
    if len(names) != n_images:
        raise ValueError(f"names must be {n_images}, one for each image, got {len(names)}")
    return [names[n] for n in chosen]


def _signed(number: float, precision: str = "g") -> str:
    return format(number, f"+{precision}").replace("-", "\N{MINUS SIGN}")


def _operator(weight: float, is_first: bool) -> str:
    sign = "\N{MINUS SIGN}" if weight < 0 else "" if is_first else "+"
    size = "" if abs(weight) == 1 else f"{abs(weight):g} ×"
    return f"{sign} {size}".strip()
