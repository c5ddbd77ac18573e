"""The grid of an image: its shape, and where its voxels are in mm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from nibabel.orientations import aff2axcodes
from numpy.typing import NDArray

Affine = NDArray[np.float64]

_SAME_SIZE = 1e-3  # mm
_SAME_PLACE = 1e-2  # voxels: headers in float32, and rotations as quaternions, are that exact
_HALF = 0.5  # the field of view ends half a voxel beyond the centres of the outermost voxels
_ROUNDING = 1e-2  # voxels
_MOST_TRIED = 24  # places along an axis


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
