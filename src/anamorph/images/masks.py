"""Masks: images that are 0 where voxels of other images are missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid, grids_must_match
from anamorph.images.readers import open_image
from anamorph.images.readers.resample import resample_labels
from anamorph.images.readers.source import Source

AnyPath = str | os.PathLike[str]


class Masks:
    """One mask for all images, or one for each.

    Parameters
    ----------
    files : path, or list of paths
    n_images : int
    grid : Grid
        Common grid of the images, without margin.
    may_resample : bool or None
        Whether masks may be resampled by their affines, as for images.
    """

    def __init__(
        self,
        files: AnyPath | Sequence[AnyPath],
        n_images: int,
        grid: Grid,
        *,
        may_resample: bool | None,
    ) -> None:
        is_one = isinstance(files, str | os.PathLike)
        paths = [Path(files)] if is_one else [Path(file) for file in files]  # type: ignore[arg-type, union-attr]
        if len(paths) not in (1, n_images):
            raise ImageError(
                f"there must be one mask for all images, or one for each of {n_images}, got "
                f"{len(paths)}"
            )
        self._grid = grid
        self._kept: dict[Path, NDArray[np.bool_]] = {}
        self._sources = [open_image(path, None, as_labels=True) for path in paths]
        for source in self._sources:
            if source.n_channels is not None:
                raise ImageError(f"{source.path} has channels: a mask is grey")
        grids_must_match(self._sources, ("the images' grid", grid), may_resample=may_resample)
        if len(paths) == 1:
            self._sources *= n_images

    def subset(self, numbers: Sequence[int]) -> Masks:
        """Return the masks of some of the images."""
        some = copy(self)
        some._sources = [self._sources[n] for n in numbers]
        return some

    def paths(self, numbers: Sequence[int]) -> list[str]:
        """Return the absolute paths of the masks of some of the images."""
        return [os.path.abspath(self._sources[n].path) for n in numbers]

    def observed(self, n: int) -> NDArray[np.bool_]:
        """Return where voxels of an image are not missing, (1, *space)."""
        source = self._sources[n]
        if source.path not in self._kept:
            self._kept = {source.path: self._read(source)}  # one mask is often that of all
        return self._kept[source.path]

    def _read(self, source: Source) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.nan_to_num(source.load()) != 0
        if source.grid.difference(self._grid) is None:
            return inside
        resampled = resample_labels(inside.astype(np.int32), source.grid, self._grid)
        return np.asarray(resampled > 0)
