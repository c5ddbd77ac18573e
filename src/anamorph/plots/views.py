"""Slices through images: their orientation, and where they are in a picture.

A 2D image is shown with its rows from top to bottom. A volume is shown as three orthogonal slices;
neighbours share an axis:

    axis 2 |  0-2 slice    1-2 slice
    axis 1 |  0-1 slice
           +-------------------------
              axis 0       axis 1

With an affine, axes 0, 1 and 2 are those of the body, nearest to left-right, back-front and
down-up, and the slices are coronal, sagittal and axial: superior and anterior are up, and the left
of the patient is on the left. A 2D image with an affine is oriented the same way. Without an
affine they are the axes of the array.

Positions are in the units of the voxel size: anisotropic voxels keep their aspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from nibabel.orientations import io_orientation
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.typing import Array
from anamorph.geometry.fields import check_voxel_size

_GAP = 0.03  # between slices, as a share of the longest side of a volume
_SIDES = (("L", "R"), ("P", "A"), ("I", "S"))  # of the axes of the body


@dataclass(frozen=True)
class View:
    """One slice through an image, and its position in the picture.

    Attributes
    ----------
    horizontal, vertical : int
        Spatial axes of the slice.
    index : int or None
        Index along the third axis, if there is one.
    corner : pair of float
        Position of the lowest corner of the slice.
    voxel_size : pair of float
        Along the horizontal and vertical axis.
    shape : pair of int
        Number of voxels along the horizontal and vertical axis.
    is_flipped : pair of bool
        Whether the first voxel is on the right, and whether it is on top.
    sides : pair of str
        Sides of the body on the left and on the right; empty if unknown.
    """

    horizontal: int
    vertical: int
    index: int | None
    corner: tuple[float, float]
    voxel_size: tuple[float, float]
    shape: tuple[int, int]
    is_flipped: tuple[bool, bool] = (False, False)
    sides: tuple[str, str] = ("", "")

    def take(self, field: NDArray[Any]) -> NDArray[Any]:
        """Return the slice (..., vertical, horizontal) of a field (..., *space)."""
        n_dims = 2 if self.index is None else 3
        source = (self.vertical - n_dims, self.horizontal - n_dims)
        turned = np.moveaxis(field, source, (-2, -1))
        return turned if self.index is None else turned[..., self.index, :, :]

    def place(self, across: Array, along: Array) -> tuple[Array, Array]:
        """Return the positions of voxel coordinates along the horizontal and vertical axis."""
        left, right, low, high = self.extent
        width, height = self.voxel_size
        return (
            right - (across + 0.5) * width if self.is_flipped[0] else left + (across + 0.5) * width,
            high - (along + 0.5) * height if self.is_flipped[1] else low + (along + 0.5) * height,
        )

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, lowest and highest position."""
        left, low = self.corner
        width, height = (n * size for n, size in zip(self.shape, self.voxel_size, strict=True))
        return left, left + width, low, low + height

    @property
    def extent_of_voxels(self) -> tuple[float, float, float, float]:
        """Outer edges of the first and the last voxel, horizontally and then vertically."""
        left, right, low, high = self.extent
        across = (right, left) if self.is_flipped[0] else (left, right)
        along = (high, low) if self.is_flipped[1] else (low, high)
        return *across, *along


@dataclass(frozen=True)
class Frame:
    """All views of an image, arranged in a picture.

    Attributes
    ----------
    views : tuple of View
        One for a 2D image, three for a volume.
    size : pair of float
        Width and height of the picture, in the units of the voxel size.
    shows_first_row_on_top : bool
        Whether vertical positions increase downwards, as in a 2D image without an affine.
    """

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
        """Draw a field (*space) or RGB (3, *space), and return an image per view."""
        is_colour = field.ndim > (2 if len(self.views) == 1 else 3)
        shown = []
        for view in self.views:
            picture = view.take(field)
            if is_colour:
                picture = np.moveaxis(picture, 0, -1)
            extent = view.extent_of_voxels
            shown.append(axes.imshow(picture, cmap=cmap, norm=norm, origin="lower", extent=extent))
        self.fit_axes(axes)
        return shown

    def name_sides(self, axes: Axes) -> None:
        """Write the sides of the body at the edges of slices, if they are known."""
        for view in self.views:
            left, right, low, high = view.extent
            places = zip(view.sides, (left, right), ("left", "right"), strict=True)
            for side, x, alignment in places:
                axes.annotate(
                    side,
                    (x, (low + high) / 2),
                    (2 if alignment == "left" else -2, 0),
                    textcoords="offset points",
                    color="white",
                    fontsize="x-small",
                    ha=alignment,
                    va="center",
                    path_effects=[withStroke(linewidth=1.5, foreground="black")],  # on any grey
                )

    def fit_axes(self, axes: Axes) -> None:
        """Make axes show exactly the picture."""
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
    affine: ArrayLike | None = None,
) -> Frame:
    """Return the views of images on a grid.

    Parameters
    ----------
    space : tuple of int
        Shape of the grid, 2 or 3 axes.
    voxel_size : 2 or 3 numbers, optional
        1 by default.
    voxel : 3 int, optional
        Where the slices through a volume meet; its centre by default.
    affine : array of shape (4, 4), optional
        From voxels to mm, which decides the orientation of slices; none by default.

    Returns
    -------
    Frame
    """
    size = check_voxel_size(voxel_size, len(space))
    directions = _find_directions(len(space), affine)
    meeting_point = None if len(space) == 2 else _checked_voxel(voxel, space)

    def view_of(across: _Direction, along: _Direction, corner: tuple[float, float]) -> View:
        h, v = across.array_axis, along.array_axis
        return View(
            h,
            v,
            None if meeting_point is None else meeting_point[3 - h - v],
            corner,
            (size[h], size[v]),
            (space[h], space[v]),
            (across.is_flipped, along.is_flipped),
            across.sides,
        )

    if len(space) == 2:
        across, along = directions if affine is not None else reversed(directions)
        view = view_of(across, along, (0.0, 0.0))
        left, right, low, high = view.extent
        return Frame((view,), (right - left, high - low), affine is None)
    sides = [space[axis.array_axis] * size[axis.array_axis] for axis in directions]
    gap = _GAP * max(sides)
    right, up = sides[0] + gap, sides[1] + gap
    views = tuple(
        view_of(directions[h], directions[v], corner)
        for h, v, corner in ((0, 2, (0.0, up)), (1, 2, (right, up)), (0, 1, (0.0, 0.0)))
    )
    return Frame(views, (right + sides[1], up + sides[2]), False)


@dataclass(frozen=True)
class _Direction:
    """An axis of the array, and its direction in the body."""

    array_axis: int
    is_flipped: bool = False
    sides: tuple[str, str] = ("", "")


def _find_directions(n_dims: int, affine: ArrayLike | None) -> list[_Direction]:
    """Return the axes of the array; with an affine, in the order of the axes of the body."""
    if affine is None:
        return [_Direction(axis) for axis in range(n_dims)]
    columns = [*range(n_dims), 3]
    found = io_orientation(np.asarray(affine, np.float64)[:, columns])  # type: ignore[no-untyped-call]
    order = np.argsort(found[:, 0])
    return [
        _Direction(int(axis), bool(found[axis, 1] < 0), _SIDES[int(found[axis, 0])])
        for axis in order
    ]


def _checked_voxel(voxel: Sequence[int] | None, space: tuple[int, ...]) -> tuple[int, ...]:
    if voxel is None:
        return tuple(n // 2 for n in space)
    inside = len(voxel) == len(space) and all(0 <= i < n for i, n in zip(voxel, space, strict=True))
    if not inside:
        raise ValueError(f"voxel must be inside a volume of shape {space}, got {tuple(voxel)}")
    return tuple(int(i) for i in voxel)
