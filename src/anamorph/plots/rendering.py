"""Images as pictures: which slices of them are shown, where, and in what colours.

A 2D image is shown as it is, rows from top to bottom. Of a volume three orthogonal slices are
shown, arranged so that neighbours share an axis (axes 0, 1 and 2 are those of the array; in a
NIfTI file they usually point right, forward and up):

    axis 2 |  0-2 slice    1-2 slice
    axis 1 |  0-1 slice
           +-------------------------
              axis 0       axis 1

Positions are in units of the voxel size, so that anisotropic voxels keep their aspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_rgb
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from anamorph.geometry.grid import check_voxel_size

Array = NDArray[np.floating]
Limits = tuple[float, float]

# The colours of Okabe and Ito, which colour-blind people tell apart. The first class is mostly
# background; the last colour is kept for missing voxels.
BACKGROUND = "#000000"
HUES = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#FFFFFF")
MISSING = "#CC79A7"

_GAP = 0.03  # between slices, as a share of the longest side of a volume
_PERCENTILES = (0.5, 99.5)
_TOLERANCE = 0.05  # by how much values may leave [0, 1] and still be shown on that scale


@dataclass(frozen=True)
class View:
    """One slice through an image, and where it is shown.

    Attributes
    ----------
    horizontal, vertical : int
        Spatial axes along which the slice extends.
    index : int or None
        Where it cuts the third axis, if there is one.
    corner : pair of float
        Position of the slice's lowest corner.
    voxel_size : pair of float
        Along the horizontal and vertical axis.
    shape : pair of int
        Number of voxels along the horizontal and vertical axis.
    """

    horizontal: int
    vertical: int
    index: int | None
    corner: tuple[float, float]
    voxel_size: tuple[float, float]
    shape: tuple[int, int]

    def take(self, field: NDArray[Any]) -> NDArray[Any]:
        """Return the slice (..., vertical, horizontal) of a field (..., *space)."""
        n_dims = 2 if self.index is None else 3
        source = (self.vertical - n_dims, self.horizontal - n_dims)
        turned = np.moveaxis(field, source, (-2, -1))
        return turned if self.index is None else turned[..., self.index, :, :]

    def place(self, across: Array, along: Array) -> tuple[Array, Array]:
        """Return positions of voxel coordinates along the horizontal and vertical axis."""
        return (
            self.corner[0] + (across + 0.5) * self.voxel_size[0],
            self.corner[1] + (along + 0.5) * self.voxel_size[1],
        )

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, lowest and highest position."""
        left, low = self.corner
        width, height = (n * size for n, size in zip(self.shape, self.voxel_size, strict=True))
        return left, left + width, low, low + height


@dataclass(frozen=True)
class Frame:
    """The views of an image, one or three, and the size of the picture that they make."""

    views: tuple[View, ...]
    size: tuple[float, float]
    shows_first_row_on_top: bool

    def draw(
        self,
        axes: Axes,
        field: NDArray[Any],
        cmap: Colormap | str | None = None,
        norm: Normalize | None = None,
    ) -> list[AxesImage]:
        """Draw a field (*space), or RGB (3, *space), and return an image per view."""
        is_colour = field.ndim > (2 if len(self.views) == 1 else 3)
        shown = []
        for view in self.views:
            picture = view.take(field)
            if is_colour:
                picture = np.moveaxis(picture, 0, -1)
            shown.append(
                axes.imshow(picture, cmap=cmap, norm=norm, origin="lower", extent=view.extent)
            )
        self.fit_axes(axes)
        return shown

    def fit_axes(self, axes: Axes) -> None:
        """Make axes show the whole picture and nothing but the picture."""
        width, height = self.size
        down = self.shows_first_row_on_top
        axes.set(xlim=(0, width), ylim=(height, 0) if down else (0, height), xticks=[], yticks=[])
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)


def frame_of(
    space: tuple[int, ...],
    voxel_size: Sequence[float] | None = None,
    voxel: Sequence[int] | None = None,
) -> Frame:
    """Return the views of images.

    Parameters
    ----------
    space : tuple of int
        Shape of the grid, 2 or 3 axes.
    voxel_size : 2 or 3 numbers, optional
        1 by default.
    voxel : 3 int, optional
        Where the slices through a volume meet; its centre by default.
    """
    size = check_voxel_size(voxel_size, len(space))
    if len(space) == 2:
        view = View(1, 0, None, (0.0, 0.0), (size[1], size[0]), (space[1], space[0]))
        return Frame((view,), (space[1] * size[1], space[0] * size[0]), True)
    meeting_point = _checked_voxel(voxel, space)
    sides = [n * s for n, s in zip(space, size, strict=True)]
    gap = _GAP * max(sides)
    right, up = sides[0] + gap, sides[1] + gap
    views = tuple(
        View(h, v, meeting_point[3 - h - v], corner, (size[h], size[v]), (space[h], space[v]))
        for h, v, corner in ((0, 2, (0.0, up)), (1, 2, (right, up)), (0, 1, (0.0, 0.0)))
    )
    return Frame(views, (right + sides[1], up + sides[2]), False)


def _checked_voxel(voxel: Sequence[int] | None, space: tuple[int, ...]) -> tuple[int, ...]:
    if voxel is None:
        return tuple(n // 2 for n in space)
    inside = len(voxel) == len(space) and all(0 <= i < n for i, n in zip(voxel, space, strict=True))
    if not inside:
        raise ValueError(f"voxel must be inside a volume of shape {space}, got {tuple(voxel)}")
    return tuple(int(i) for i in voxel)


def class_colours(n_classes: int) -> NDArray[np.float64]:
    """Return the colours of classes, (n_classes, 3): black first, paler hues when they repeat."""
    n_rounds = max(1, -(-(n_classes - 1) // len(HUES)))
    hues = np.array([to_rgb(hue) for hue in HUES])
    paler = [hues + (1 - hues) * r / n_rounds for r in range(n_rounds)]
    return np.concatenate([[to_rgb(BACKGROUND)], *paler])[:n_classes]


def channel_colours(n_channels: int) -> NDArray[np.float64]:
    """Return the colours of channels, (C, 3), which add up to white or less.

    One channel is grey, two are orange and blue, three are red, green and blue.
    """
    if n_channels == 1:
        return np.ones((1, 3))
    if n_channels == 2:
        return np.array([[1, 0.5, 0], [0, 0.5, 1]])
    if n_channels == 3:
        return np.eye(3)
    colours = class_colours(n_channels + 1)[1:]
    return np.asarray(colours / colours.sum(axis=0).max())


@dataclass(frozen=True)
class Palette:
    """How the values of images become colours.

    Attributes
    ----------
    colours : array of shape (C, 3)
        What each channel or class adds to the colour of a voxel.
    lowest, highest : arrays of shape (C,)
        Values that are shown as nothing and as all of that colour.
    """

    colours: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]

    def rgb(self, image: Array) -> Array:
        """Return an image (C, *space) as RGB (3, *space), missing voxels in a colour of theirs."""
        each = (-1, *(1,) * (image.ndim - 1))
        low, high = self.lowest.reshape(each), self.highest.reshape(each)
        is_missing = np.isnan(image).any(axis=0)
        share = np.clip((np.nan_to_num(image) - low) / (high - low), 0, 1)
        mixed = np.clip(np.tensordot(self.colours.T, share, axes=1), 0, 1)
        missing = np.reshape(to_rgb(MISSING), (3, *(1,) * is_missing.ndim))
        return np.where(is_missing, missing, mixed)


def palette_of(images: Array, likelihood: str, limits: Limits | None = None) -> Palette:
    """Return the colours for images of a likelihood.

    Parameters
    ----------
    images : array of shape (N, C, *space)
        Those whose values decide what is black and what is white: 0 and 1 if the values lie
        between and reach one half, else the range of (99% of) the values. Red, green and blue
        share one range; other channels have one each.
    likelihood : str
        Probabilities, of "bernoulli" and "categorical", always go from 0 to 1.
    limits : pair of float, optional
        Values to show as black and white instead.
    """
    n_channels = images.shape[1]
    is_categorical = likelihood == "categorical"
    colours = class_colours(n_channels) if is_categorical else channel_colours(n_channels)
    if is_categorical or (likelihood == "bernoulli" and limits is None):
        limits = (0.0, 1.0)
    if limits is not None:
        if not (np.isfinite(limits).all() and limits[0] < limits[1]):
            raise ValueError(f"limits must be two increasing numbers, got {limits!r}")
        ranges = [limits] * n_channels
    elif n_channels == 3:
        ranges = [_range_of(images)] * 3
    else:
        ranges = [_range_of(images[:, c]) for c in range(n_channels)]
    lowest, highest = np.array(ranges, np.float64).T
    return Palette(colours, lowest, highest)


def _range_of(values: Array) -> Limits:
    observed = values[np.isfinite(values)]
    if observed.size == 0:
        return 0.0, 1.0
    low, high = map(float, np.percentile(observed, _PERCENTILES))
    if low >= -_TOLERANCE and 0.5 <= high <= 1 + _TOLERANCE:
        return 0.0, 1.0
    return (low, high) if low < high else (low, low + 1)
