"""Coordinates of points: x, y, z in mm by the affine of a grid, and indices of voxels.

Without an affine x, y and z are voxels, as in pictures: x along the last axis of an array, y along
the one before. A grid of a plane leaves the coordinate across it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.images.grid import Affine, Grid

Points = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Where the voxels of a grid are.

    Attributes
    ----------
    to_mm : array of shape (4, 4)
        From indices of voxels (the third one of a plane is 0) to x, y, z.
    n_dims : int
        2 or 3.
    """

    to_mm: Affine
    n_dims: int

    @classmethod
    def of_grid(cls, grid: Grid, margin: int = 0) -> World:
        """Return the world of a grid.

        Parameters
        ----------
        grid : Grid
        margin : int
            Voxels on every side of a grid without affine that do not count; 0 by default.
        """
        n_dims = len(grid.space)
        if grid.affine is not None:
            return cls(grid.affine, n_dims)
        to_mm = np.eye(4)
        to_mm[:n_dims, :n_dims] = np.eye(n_dims)[::-1]
        to_mm[:n_dims, 3] = -margin
        return cls(to_mm, n_dims)

    def split(self, points: Points) -> tuple[Points, Points]:
        """Return the voxels (n, d) of points (n, 3), and how far they are across a plane."""
        inverse = np.linalg.inv(self.to_mm)
        voxels = points @ inverse[:3, :3].T + inverse[:3, 3]
        return voxels[:, : self.n_dims], voxels[:, self.n_dims :]

    def join(self, voxels: Points, across: Points | None = None) -> Points:
        """Return points (n, 3) from voxels (n, d), the inverse of `split`; 0 across by default."""
        if across is None:
            across = np.zeros((len(voxels), 3 - self.n_dims))
        full = np.concatenate([voxels, across], axis=1)
        points: Points = full @ self.to_mm[:3, :3].T + self.to_mm[:3, 3]
        return points
