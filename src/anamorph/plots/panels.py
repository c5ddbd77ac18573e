"""What pictures share: images of a model, rows of them with their names, and new axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.latents import mode_standard_deviations
from anamorph.model.checks import check_integer
from anamorph.plots.notebooks import ShownAxes, ShownFigure
from anamorph.plots.rendering import (
    MISSING,
    Limits,
    Palette,
    background_class,
    class_colours,
    palette_of,
)
from anamorph.plots.views import Frame, frame_of

Images = NDArray[Any] | Sequence[Any] | ImageCollection  # forms that have a length
AnyFigure = Figure | SubFigure
MOST_IMAGES = 8  # shown by default
_KEY_WIDTH = 1.3  # inches of an entry of a legend
Row = tuple[str, Array]  # name, and images (n, C, *space)


def observed_images(model: ShapeAppearanceModel, images: Any) -> Array:
    """Return all images of a user with channels first, NaN where missing."""
    collection = model.checked_images(images)
    return collection.read(slice(0, len(collection)))


def matched_images(model: ShapeAppearanceModel, images: Array, expected: Array) -> Array:
    """Return images (N, C, *space) as the model compares them with what it expects of them.

    If each image has a gain of its own (`intensity`), it is taken away: what is left has the
    intensities of the template.
    """
    compared: Array = to_host(model.generator_.comparable(images, expected)[0])
    return compared


def along_mode(
    model: ShapeAppearanceModel, mode: int, deviations: Sequence[float] | Array, part: str
) -> Array:
    """Return the images along one mode, at some standard deviations."""
    check_is_fitted(model, "mean_")
    n_latents = len(model.latent_precision_)
    check_integer("a mode", mode, 0, n_latents - 1)
    latents = np.zeros((len(deviations), n_latents))
    latents[:, mode] = deviations
    latents *= mode_standard_deviations(model.latent_precision_)
    return model.expected_images(latents, part)


def mean_image(model: ShapeAppearanceModel) -> Array:
    """Return the image of z = 0, (1, C, *space)."""
    return model.settings_.likelihood.expectation(model.mean_[None])


def take_images(images: Images, chosen: list[int]) -> Any:
    """Return some of the images in the form they were given, without reading the others."""
    if isinstance(images, ImageCollection):
        return images.subset(chosen)
    return images[chosen] if isinstance(images, np.ndarray) else [images[n] for n in chosen]


def checked_indices(indices: Iterable[int] | None, n_images: int) -> list[int]:
    """Return the numbers of the images to show; those of the first few by default."""
    chosen = list(range(min(MOST_IMAGES, n_images)) if indices is None else indices)
    if not chosen:
        raise ValueError("no images to show: indices are empty")
    for index in chosen:
        check_integer("an index", index, 0, n_images - 1)
    return chosen


def checked_latents(model: ShapeAppearanceModel, latents: Any, n_rows: int) -> Array:
    """Return latents (n_rows, K) as an array."""
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


def draw_rows(
    model: ShapeAppearanceModel,
    rows: Sequence[Row],
    titles: Sequence[str] | None,
    deciding: Array,
    limits: Limits | None,
    voxel: Sequence[int] | None,
    figure: AnyFigure | None,
    keys: Sequence[Patch] = (),
    length: float | None = None,
) -> AnyFigure:
    """Draw rows of images.

    Parameters
    ----------
    model : ShapeAppearanceModel
    rows : sequence of (name, images)
        Images of shape (n, C, *space).
    titles : sequence of str, or None
        Titles of the columns.
    deciding : array of shape (N, C, *space)
        Images whose values decide what is black and what is white.
    limits, voxel, figure
        As in `plot_fits`.
    keys : sequence of Patch
        More entries for the legend; none by default.
    length : float, optional
        Of the longer side of an image, in inches; by default what suits planes, or volumes.

    Returns
    -------
    Figure or SubFigure
    """
    frame, palette = model_frame(model, voxel), model_palette(model, deciding, limits)
    n_columns = max(len(images) for _, images in rows)
    keys = [*_class_keys(model), *keys]
    if figure is None:
        longest_line = max(len(line) for name, _ in rows for line in name.split("\n"))
        margins = (0.1 + 0.09 * longest_line, 0.3 * bool(titles) + 0.3 * bool(keys))
        figure = _figure_of_panels(frame, len(rows), n_columns, margins, length)
    panels = figure.subplots(len(rows), n_columns, squeeze=False)
    for (name, images), row in zip(rows, panels, strict=True):
        for axes in row[len(images) :]:
            axes.set_axis_off()
        for axes, image in zip(row, images, strict=False):
            frame.draw(axes, palette.rgb(image))
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", parse_math=False)
    frame.name_sides(panels[0, 0])
    for axes, title in zip(panels[0], titles or (), strict=False):
        axes.set_title(
            title, fontsize="medium", parse_math=False
        )  # a $ in a name does not begin a formula
    if keys:
        figure.legend(
            handles=keys,
            loc="outside lower center",
            ncols=keys_per_row(figure.bbox.width / figure.dpi, len(keys)),
            frameon=False,
        )
    return figure


def keys_per_row(width: float, n_keys: int) -> int:
    """Return how many entries of a legend fit side by side into a width in inches."""
    return max(1, min(n_keys, int(width / _KEY_WIDTH)))


def _figure_of_panels(
    frame: Frame,
    n_rows: int,
    n_columns: int,
    margins: tuple[float, float],
    length: float | None = None,
) -> Figure:
    is_volume = len(frame.views) > 1
    pad = 0.08 if is_volume else 0.03  # inches; slices of one volume are closer than volumes
    width, height = panel_size(frame, length or (1.9 if is_volume else 1.15))
    size = (n_columns * (width + 2 * pad) + margins[0], n_rows * (height + 2 * pad) + margins[1])
    engine = ConstrainedLayoutEngine(w_pad=pad, h_pad=pad, wspace=0, hspace=0, compress=True)
    return ShownFigure(size, layout=engine)


def missing_key(images: Array) -> list[Patch]:
    """Return the entry of the legend that explains missing voxels, if there are any."""
    return [Patch(color=MISSING, label="missing")] if np.isnan(images).any() else []


def _class_keys(model: ShapeAppearanceModel) -> list[Patch]:
    if not model.settings_.likelihood.holds_classes:
        return []
    background = background_class(mean_image(model))
    colours, labels = class_colours(len(model.mean_), background), model.image_format_.labels
    return [
        Patch(
            facecolor=tuple(colour),
            edgecolor="grey",
            label=(f"class {c}" if labels is None else f"label {labels[c]}")
            + " (background)" * (c == background),
        )
        for c, colour in enumerate(colours)
    ]


def model_frame(model: ShapeAppearanceModel, voxel: Sequence[int] | None) -> Frame:
    """Return the slices that show the images of a model."""
    settings = model.settings_
    return frame_of(settings.space, settings.voxel_size, voxel, model.origin_.affine)


def model_palette(
    model: ShapeAppearanceModel, deciding: Array, limits: Limits | None = None
) -> Palette:
    """Return the colours of images of a model, the same background for all of them."""
    has_classes = model.settings_.likelihood.holds_classes
    background = background_class(mean_image(model)) if has_classes else None
    return palette_of(deciding, model.likelihood, limits, background)


def panel_size(frame: Frame, longest: float, extra_width: float = 0.0) -> tuple[float, float]:
    """Return the width and height, in inches, of a panel with the proportions of a frame."""
    scale = longest / max(frame.size)
    return frame.size[0] * scale + extra_width, frame.size[1] * scale


def axes_or_new(axes: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the given axes, or those of a new figure."""
    if axes is not None:
        return axes
    figure = ShownFigure(size, layout="constrained")
    return figure.subplots(subplot_kw={"axes_class": ShownAxes})


def image_titles(names: Sequence[str] | None, chosen: list[int], n_images: int) -> list[str]:
    """Return the titles of the chosen images."""
    if names is None:
        return [f"image {n}" for n in chosen]
    if len(names) != n_images:
        raise ValueError(f"names must be {n_images}, one for each image, got {len(names)}")
    return [names[n] for n in chosen]


def signed(number: float, precision: str = "g") -> str:
    """Return a number with its sign (none for 0) and a minus as wide as a plus."""
    sign = "+" if number else ""
    return format(number, f"{sign}{precision}").replace("-", "\N{MINUS SIGN}")
