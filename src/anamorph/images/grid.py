"""Grids: their shape, where their voxels are in mm, and the one that all files share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from nibabel.orientations import aff2axcodes
from numpy.typing import NDArray

from anamorph.images.errors import ImageError

if TYPE_CHECKING:
    from anamorph.images.readers.source import Source  # which has a grid

Affine = NDArray[np.float64]

_SAME_SIZE = 1e-3  # mm
_SAME_PLACE = 1e-2  # voxels: headers in float32, and rotations as quaternions, are that exact
_HALF = 0.5  # the field of view ends half a voxel beyond the centres of the outermost voxels
_ROUNDING = 1e-2  # voxels
_MOST_TRIED = 24  # places along an axis
_MOST_GROWTH = 8  # times the voxels of the largest image


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid of voxels.

    Attributes
    ----------
    space : tuple of 2 or 3 int
    affine : array of shape (4, 4), or None
        From voxel indices (from 0) to mm; the third index of a 2D image is 0. None for pictures
        and arrays, whose place is unknown.
    """

    space: tuple[int, ...]
    affine: Affine | None = None

    @property
    def voxel_size(self) -> tuple[float, ...]:
        """Size of a voxel along each axis, in mm; 1 without an affine."""
        if self.affine is None:
            return (1.0,) * len(self.space)
        return tuple(np.linalg.norm(self.affine[:3, : len(self.space)], axis=0).tolist())

    @property
    def centre(self) -> NDArray[np.float64]:
        """The middle of the field of view, in mm; in voxels without an affine."""
        middle = [(length - 1) / 2 for length in self.space] + [0.0] * (3 - len(self.space))
        return np.array(middle) if self.affine is None else (self.affine @ [*middle, 1.0])[:3]

    @property
    def orientation(self) -> str | None:
        """Where axes lead, e.g. "RAS" for right, anterior, superior; None without an affine."""
        if self.affine is None:
            return None
        codes = aff2axcodes(self.affine)  # type: ignore[no-untyped-call]
        return "".join(map(str, codes[: len(self.space)]))

    def padded(self, margin: int) -> Grid:
        """Return the grid with `margin` more voxels on every side; a negative margin takes away.

        Voxels that remain keep their place in mm.
        """
        space = tuple(length + 2 * margin for length in self.space)
        if self.affine is None:
            return Grid(space)
        first = np.array([-margin] * len(space) + [0] * (3 - len(space)) + [1])
        affine = self.affine.copy()
        affine[:, 3] = self.affine @ first
        return Grid(space, affine)

    def share_inside(self, other: Grid) -> float:
        """Return about which share of this grid is within the field of view of another, 0 to 1."""
        transform = self._to_voxels_of(other)
        axes = [np.linspace(0, length - 1, min(length, _MOST_TRIED)) for length in self.space]
        voxels = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")])
        inside = _moved(transform, voxels)
        lengths = np.array(other.space)[:, None]
        within = (inside >= -_HALF - _ROUNDING) & (inside <= lengths - _HALF + _ROUNDING)
        return float(within.all(axis=0).mean())

    def holding(self, others: Sequence[Grid]) -> Grid:
        """Return this grid, extended to hold the fields of view of others.

        Axes and voxel size stay, and voxels of this grid are voxels of the new one. Every new
        voxel has its centre within the field of view of one of them, along each axis.
        """
        lowest, highest = np.zeros(len(self.space)), np.array(self.space) - 1.0
        for other in others:
            edges = [(-_HALF, length - _HALF) for length in other.space]
            corners = np.array(list(product(*edges))).T
            inside = _moved(other._to_voxels_of(self), corners)
            lowest = np.minimum(lowest, np.ceil(inside.min(axis=1) - _ROUNDING))
            highest = np.maximum(highest, np.floor(inside.max(axis=1) + _ROUNDING))
        affine = np.array(self.affine)
        first = np.concatenate([lowest, np.zeros(3 - len(self.space)), [1.0]])
        affine[:, 3] = affine @ first
        return Grid(tuple(int(length) for length in highest - lowest + 1), affine)

    def _to_voxels_of(self, other: Grid) -> Affine:
        """Return the affine from voxels of this grid to those of another."""
        if self.affine is None or other.affine is None:
            raise ValueError("both grids must have an affine")
        return np.asarray(np.linalg.solve(other.affine, self.affine), np.float64)

    def facts(self) -> tuple[tuple[int, ...], list[float] | None]:
        """Return plain values that identify the grid."""
        return self.space, None if self.affine is None else self.affine.ravel().tolist()

    def difference(self, other: Grid) -> str | None:
        """Return how this grid differs from another, in words; None if they are the same."""
        if self.space != other.space:
            return f"shape, {format_shape(self.space)} and {format_shape(other.space)}"
        if self.affine is None or other.affine is None:
            if self.affine is other.affine:
                return None
            return "affine, which only one of them has"
        sizes = np.array([self.voxel_size, other.voxel_size])
        if np.abs(sizes[0] - sizes[1]).max() > _SAME_SIZE:
            ours, theirs = (" x ".join(f"{length:.4g}" for length in size) for size in sizes)
            return f"voxel size, {ours} and {theirs} mm"
        distance = self._farthest(self.affine - other.affine)
        if distance > _SAME_PLACE * sizes.min():
            return f"affine, voxels being up to {distance:.3g} mm apart"
        return None

    def _farthest(self, shift: Affine) -> float:
        """Return the largest distance, in mm, by which an affine shift moves a corner."""
        corners = np.array(np.meshgrid(*[[0, length - 1] for length in self.space]))
        corners = corners.reshape(len(self.space), -1)
        moved = shift[:3, : len(self.space)] @ corners + shift[:3, 3:]
        return float(np.linalg.norm(moved, axis=0).max())


def _moved(transform: Affine, voxels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where an affine moves voxels (d, n); the third index of a 2D grid is 0."""
    n_dims = len(voxels)
    moved: NDArray[np.float64] = transform[:n_dims, :n_dims] @ voxels + transform[:n_dims, 3:]
    return moved


def slices_inside(grid: Grid, margin: int) -> tuple[slice, ...]:
    """Return slices that take the voxels of a grid out of an array with a margin around them.

    Parameters
    ----------
    grid : Grid
        Without the margin.
    margin : int
        Voxels on every side.
    """
    return tuple(slice(margin, margin + length) for length in grid.space)


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape in words, e.g. "64 x 48"."""
    return " x ".join(map(str, shape)) or "a single number"


def grid_for_all(sources: Sequence[Source], *, resample: bool) -> Grid:
    """Return the grid of the first file, or where grids differ one that holds all files.

    Parameters
    ----------
    sources : list of Source
    resample : bool
        Whether files may be resampled; if not, all must have the grid of the first.
    """
    first = sources[0].grid
    grids = [source.grid for source in sources]
    if not resample or any(grid.affine is None for grid in grids):
        return first
    if len({len(grid.space) for grid in grids}) > 1:
        return first  # refused as of other shapes
    if all(first.difference(grid) is None for grid in grids):
        return first
    found = _typical_grid(grids).holding(grids)
    largest = max(math.prod(grid.space) for grid in grids)
    if math.prod(found.space) > _MOST_GROWTH * largest:
        centres = np.array([grid.centre for grid in grids])
        distances = np.linalg.norm(centres - np.median(centres, axis=0), axis=1)
        farthest = sources[int(distances.argmax())]
        raise ImageError(
            f"a grid that holds all images would be {format_shape(found.space)}, "
            f"{math.prod(found.space) / largest:.3g} times the largest of them: {farthest.path} is "
            "far from the others; align the images, or give the grid of one of them as reference "
            "(--reference FILE)"
        )
    return found


def _typical_grid(grids: Sequence[Grid]) -> Grid:
    """Return the first grid with voxels of median size, along axes that most such grids have."""
    volumes = np.array([math.prod(grid.voxel_size) for grid in grids])
    distance = np.abs(np.log(volumes / np.median(volumes)))
    usual = [
        grid for grid, far in zip(grids, distance, strict=True) if far <= distance.min() + 0.01
    ]
    orientations = [grid.orientation for grid in usual]
    common = max(dict.fromkeys(orientations), key=orientations.count)
    return usual[orientations.index(common)]


def describe_grids(sources: Sequence[Source], grid: Grid) -> str | None:
    """Return how many files are brought onto a grid, in words; None if all are on it."""
    others = [source for source in sources if grid.difference(source.grid) is not None]
    if not others:
        return None
    size = " x ".join(f"{length:.3g}" for length in grid.voxel_size)
    return (
        f"{len(others)} of {len(sources)} files are on other grids, and are brought onto one of "
        f"{format_shape(grid.space)} voxels of {size} mm, axes {grid.orientation}, by their affines"
    )


def grids_must_match(
    sources: Sequence[Source], target: tuple[str, Grid] | None, *, may_resample: bool | None
) -> None:
    """Raise an ImageError if files cannot be brought onto one grid.

    Parameters
    ----------
    sources : list of Source
    target : pair of str and Grid, optional
        A grid with its name; by default that of the first file.
    may_resample : bool or None
        Whether files may be resampled by their affines; None: if their headers say where voxels
        are.
    """
    name, grid = target or (str(sources[0].path), sources[0].grid)
    for source in sources:
        difference = grid.difference(source.grid)
        advice = "use resample=True (--resample) to bring all images onto one grid"
        if grid.affine is None or source.grid.affine is None:
            advice = "bring them to one size first, only volumes can be resampled"
        elif len(grid.space) != len(source.grid.space):
            advice = "an image and a volume do not go together"
        elif may_resample is None and source.place_is_guess and difference is not None:
            raise ImageError(
                f"{source.path} does not say where its voxels are (neither sform nor qform is "
                f"set), and differs from {name} in {difference}: set its sform, or use "
                "resample=True (--resample) to rely on a guess, by which left may be right"
            )
        elif may_resample is not False:
            difference = None
        if difference is not None:
            raise ImageError(f"{name} and {source.path} differ in {difference}: {advice}")


def check_place(sources: Sequence[Source]) -> str | None:
    """Return a warning about files that do not say where their voxels are; None if all do."""
    guessed = [source for source in sources if source.place_is_guess]
    if not guessed:
        return None
    return (
        f"{len(guessed)} of {len(sources)} files do not say where their voxels are (neither sform "
        f"nor qform is set), e.g. {guessed[0].path}: place and orientation are guessed, and left "
        "may be right"
    )
