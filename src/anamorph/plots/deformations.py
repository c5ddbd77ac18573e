"""Pictures of warps: deformation grids and maps of the log Jacobian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from anamorph.arrays.typing import Array
from anamorph.geometry import jacobian_determinant
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.checks import check_choice, check_integer
from anamorph.plots.panels import axes_or_new, panel_size
from anamorph.plots.rendering import BACKGROUND, MISSING, palette_of
from anamorph.plots.views import View, frame_of

_JACOBIAN_COLOURS = colormaps["RdBu_r"].with_extremes(bad=MISSING)


def plot_deformation(
    displacement: ArrayLike,
    *,
    background: ArrayLike | None = None,
    likelihood: str = "gaussian",
    over: str = "mean",
    spacing: int | None = None,
    colour: str | None = None,
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
    affine: ArrayLike | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw the lines of a regular grid deformed by psi = id + displacement.

    An image is the mean sampled at psi: psi maps points of the image to points of the mean.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels. In a volume, the lines within each slice are drawn, seen along the third axis.
    background : array of shape (*space) or (*space, C), optional
        Image to draw the lines over.
    likelihood : str
        Of the background, "gaussian" by default: whether its C channels are intensities, counts or
        probabilities of classes.
    over : {"mean", "image"}
        "mean" (by default): the grid of the image, mapped by psi, over the mean. "image": the grid
        of the mean, mapped back by psi, over the image.
    spacing : int, optional
        Voxels between lines; by default there are about 24 lines along the longest axis.
    colour : str, optional
        Colour of the lines; black by default, or that of missing voxels over a background.
    voxel_size : 2 or 3 numbers, optional
        1 by default.
    voxel : 3 int, optional
        Where the slices through a volume meet; the centre by default.
    affine : array of shape (4, 4), optional
        From voxels to mm, which decides the orientation of slices; none by default.
    axes : Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    Axes
    """
    field = _checked_displacement(displacement)
    space = field.shape[1:]
    step = max(1, round(max(space) / 24)) if spacing is None else spacing
    check_integer("spacing", step, 1)
    check_choice("over", over, ("mean", "image"))
    check_choice("likelihood", likelihood, tuple(LIKELIHOODS))
    frame = frame_of(space, voxel_size, voxel, affine)
    image = None if background is None else _checked_background(background, space)
    axes = axes_or_new(axes, panel_size(frame, 4.5))
    if image is not None:
        frame.draw(axes, palette_of(image[None], likelihood).rgb(image))
    if colour is None:
        colour = BACKGROUND if image is None else MISSING  # which no image has
    draw_lines = _draw_carried_lines if over == "mean" else _draw_level_lines
    for view in frame.views:
        draw_lines(axes, view, field, step, colour)
    frame.fit_axes(axes)
    return axes


def plot_log_jacobian(
    displacement: ArrayLike,
    *,
    of_image: bool = False,
    limit: float | None = None,
    has_colour_bar: bool = True,
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
    affine: ArrayLike | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw log |D psi|: red where psi = id + displacement expands, blue where it contracts.

    An image is the mean sampled at psi: red parts are smaller in the image than in the mean; with
    `of_image` red parts are larger.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels. Where it folds, the logarithm does not exist: drawn in the colour of missing.
    of_image : bool
        Draw -log |D psi|, the growth of the image relative to the mean; False by default.
    limit : float, optional
        Value at the ends of the colour bar; by default the largest absolute value.
    has_colour_bar : bool
        Whether to draw a colour bar; True by default. To draw another, use ``axes.images[0]``.
    voxel_size, voxel, affine, axes
        As in `plot_deformation`.

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
    if of_image:
        logarithm = -logarithm
    frame = frame_of(field.shape[1:], voxel_size, voxel, affine)
    highest = np.nanmax(np.abs(logarithm), initial=1e-3) if limit is None else limit
    axes = axes_or_new(axes, panel_size(frame, 4.5, 1.2))
    norm = Normalize(-highest, highest)
    first, *_ = frame.draw(axes, logarithm, _JACOBIAN_COLOURS, norm)
    if has_colour_bar:
        axes.figure.colorbar(first, ax=axes, label=jacobian_label(of_image), shrink=0.8)
    return axes


def jacobian_label(of_image: bool) -> str:
    """Return the label of the values that `plot_log_jacobian` draws."""
    return r"$-\log\,|D\psi|$" if of_image else r"$\log\,|D\psi|$"


def _draw_carried_lines(axes: Axes, view: View, field: Array, spacing: int, colour: str) -> None:
    """Draw the grid lines of a slice mapped by psi."""
    moved = view.take(field)
    along, across = np.indices(moved.shape[1:])
    points = np.stack(
        view.place(across + moved[view.horizontal], along + moved[view.vertical]), axis=-1
    )
    rows, columns = (range(n % spacing // 2, n, spacing) for n in points.shape[:2])
    segments = [*(points[n] for n in rows), *(points[:, n] for n in columns)]
    lines = LineCollection(segments, colors=colour, linewidths=0.8)
    left, right, low, high = view.extent
    window = Rectangle((left, low), right - left, high - low, transform=axes.transData)
    lines.set_clip_path(window)  # lines must not leave their slice
    axes.add_collection(lines, autolim=False)


def _draw_level_lines(axes: Axes, view: View, field: Array, spacing: int, colour: str) -> None:
    """Draw where psi crosses the planes of a regular grid: exact, without inverting psi."""
    moved = view.take(field)
    along, across = np.indices(moved.shape[1:], moved.dtype)
    x, y = view.place(across, along)
    for position, axis in ((across, view.horizontal), (along, view.vertical)):
        crossed = position + moved[axis]
        first = np.ceil(crossed.min() / spacing) * spacing
        levels = np.arange(first, crossed.max(), spacing)
        if len(levels):
            axes.contour(x, y, crossed, levels, colors=colour, linewidths=0.8)


def _checked_displacement(displacement: ArrayLike) -> Array:
    field = np.asarray(displacement, np.float32)
    if field.ndim not in (3, 4) or len(field) != field.ndim - 1:
        raise ValueError(
            f"displacement must have shape (2, ny, nx) or (3, nz, ny, nx), got {field.shape}"
        )
    return field


def _checked_background(background: ArrayLike, space: tuple[int, ...]) -> Array:
    """Return a background with channels first, (C, *space)."""
    image = np.asarray(background, np.float64)
    if image.shape[: len(space)] != space or image.ndim > len(space) + 1:
        raise ValueError(
            f"background must have the shape {space} of the displacement, perhaps with channels "
            f"last, got {image.shape}"
        )
    return image[None] if image.ndim == len(space) else np.moveaxis(image, -1, 0)
