"""An image file whose header has been read, and whose voxels have not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import SCALES
from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid
from anamorph.images.guard import format_shape, read_stamp
from anamorph.likelihoods import OF_CLASSES


@dataclass(frozen=True)
class Source:
    """An image file before its voxels are read.

    Attributes
    ----------
    path : Path
    grid : Grid
    n_channels : int or None
        None if there is no channel axis.
    scale : float or None
        Value that means 1; None if values are used as they are.
    is_slow : bool
        Whether decoding takes longer than reading, as for compressed files.
    stamp : pair of int
        Size and time of the last change of the file when it was opened.
    decode : callable
        Returns the voxels, (*space) or (*space, n_channels), NaN where missing.
    """

    path: Path
    grid: Grid
    n_channels: int | None
    scale: float | None
    is_slow: bool
    stamp: tuple[int, int]
    decode: Callable[[], NDArray[Any]]

    def load(self) -> NDArray[Any]:
        """Return the voxels, (C, *space), as float32 or the integers of the file, not scaled."""
        if read_stamp(self.path) != self.stamp:
            raise ImageError(f"{self.path} has changed since it was first read: start again")
        voxels = self.decode()
        channels = () if self.n_channels is None else (self.n_channels,)
        expected = (*self.grid.space, *channels)
        if voxels.shape != expected:
            raise ImageError(
                f"{self.path} is damaged: its header says {format_shape(expected)}, and it holds "
                f"{format_shape(voxels.shape)}: make it again, or leave it out"
            )
        if voxels.dtype.kind == "f":
            with np.errstate(over="ignore"):  # infinity is rejected when values are checked
                voxels = voxels.astype(np.float32)
        return voxels[None] if self.n_channels is None else np.moveaxis(voxels, -1, 0)


def scale_of(dtype: np.dtype[Any]) -> float | None:
    """Return the value that means 1 in images of a type, or None if values are not scaled."""
    return SCALES.get(dtype.newbyteorder("="))


def check_numbers(path: Path, dtype: np.dtype[Any]) -> None:
    """Raise an ImageError unless a type holds real numbers."""
    if dtype.kind not in "biuf":
        raise ImageError(f"{path} holds {dtype}, not real numbers: convert it, e.g. to float32")


def check_range_is_known(path: Path, voxels: NDArray[Any]) -> None:
    """Raise an ImageError if the range of intensities cannot be told from an integer type."""
    if voxels.dtype.kind in "iu" and scale_of(voxels.dtype) is None:
        if ((voxels == 0) | (voxels == 1)).all():
            return
        raise ImageError(
            f"{path} holds {voxels.dtype}, whose range says nothing about the values: convert it "
            f"to float32, uint8 or uint16, or use likelihood={OF_CLASSES!r} for label maps"
        )
