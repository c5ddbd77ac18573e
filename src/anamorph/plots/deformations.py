"""Pictures of warps: deformation grids and maps of the log Jacobian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from anamorph.geometry import jacobian_determinant
from anamorph.plots.model_images import check_integer
from anamorph.plots.panels import axes_or_new, panel_size
from anamorph.plots.rendering import BACKGROUND, MISSING, palette_of
from anamorph.plots.views import View, frame_of

Array = NDArray[np.floating]
_JACOBIAN_COLOURS = colormaps["RdBu_r"].with_extremes(bad=MISSING)


def plot_deformation(
    displacement: ArrayLike,
    *,
    background: ArrayLike | None = None,
    likelihood: str = "gaussian",
    spacing: int | None = None,
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
    affine: ArrayLike | None = None,
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
    affine : array of shape (4, 4), optional
        From voxels to mm, which says which way up slices are shown.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
    """
    field = _checked_displacement(displacement)
    space = field.shape[1:]
    step = max(1, round(max(space) / 24)) if spacing is None else spacing
    check_integer("spacing", step, 1)
    frame = frame_of(space, voxel_size, voxel, affine)
    image = None if background is None else _checked_background(background, space)
    axes = axes_or_new(axes, panel_size(frame, 4.5))
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
    affine: ArrayLike | None = None,
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
    voxel_size, voxel, affine, axes
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
    frame = frame_of(field.shape[1:], voxel_size, voxel, affine)
    highest = np.nanmax(np.abs(logarithm), initial=1e-3) if limit is None else limit
    axes = axes_or_new(axes, panel_size(frame, 4.5, 1.2))
    norm = Normalize(-highest, highest)
    first, *_ = frame.draw(axes, logarithm, _JACOBIAN_COLOURS, norm)
    axes.figure.colorbar(first, ax=axes, label=r"$\log\,|D\psi|$", shrink=0.8)
    return axes


def _carried_lines(view: View, field: Array, spacing: int) -> list[Array]:
    """Return grid lines of a slice where psi carries them, each (n_points, 2)."""
    moved = view.take(field)
    along, across = np.indices(moved.shape[1:])
    points = np.stack(
        view.place(across + moved[view.horizontal], along + moved[view.vertical]), axis=-1
    )
    rows, columns = (range(n % spacing // 2, n, spacing) for n in points.shape[:2])
    return [*(points[n] for n in rows), *(points[:, n] for n in columns)]


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
