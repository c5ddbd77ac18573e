"""Voxels of a file on the common grid: loaded, resampled, and cached where that is slow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.cache import Cache
from anamorph.images.grid import Grid
from anamorph.images.labels import as_labels
from anamorph.images.readers.resample import resample, resample_labels
from anamorph.images.readers.source import Source


@dataclass(frozen=True)
class Decoder:
    """How the voxels of all files of a collection are read.

    Attributes
    ----------
    grid : Grid
        The common grid, without margin.
    cache : Cache
    has_labels : bool
        Whether voxels hold labels, which are not interpolated.
    channel_axis : int or None
        Axis of the stack of images that holds channels.
    missing_value : float or None
        Value that stands for missing, besides NaN.
    """

    grid: Grid
    cache: Cache
    has_labels: bool
    channel_axis: int | None
    missing_value: float | None

    def is_elsewhere(self, source: Source) -> bool:
        """Tell whether a file is on another grid, so that it has to be resampled."""
        return source.grid.difference(self.grid) is not None

    def read(self, source: Source) -> NDArray[Any]:
        """Return voxels (C, *space) on the common grid, from the cache if decoding is slow."""
        is_elsewhere = self.is_elsewhere(source)
        if not (source.is_slow or is_elsewhere):
            return self._decode(source, is_elsewhere)
        facts = (
            os.path.abspath(source.path),
            source.stamp,
            self.has_labels,
            self.channel_axis,
            self.missing_value,
            self.grid.facts() if is_elsewhere else None,
        )
        return self.cache.get(source.path.name, facts, lambda: self._decode(source, is_elsewhere))

    def read_unresampled(self, source: Source) -> NDArray[Any]:
        """Return voxels as the file holds them, from the cache if they are in it."""
        return self._load(source) if self.is_elsewhere(source) else self.read(source)

    def _decode(self, source: Source, is_elsewhere: bool) -> NDArray[Any]:
        voxels = self._load(source)
        if self.has_labels:
            labels = as_labels(source.path, voxels)
            return resample_labels(labels, source.grid, self.grid) if is_elsewhere else labels
        return resample(voxels, source.grid, self.grid) if is_elsewhere else voxels

    def _load(self, source: Source) -> NDArray[Any]:
        """Return the voxels of a file, with NaN where a value stands for missing."""
        voxels = source.load()
        if self.missing_value is None:
            return voxels
        return np.where(voxels == self.missing_value, np.nan, voxels)
