"""Matching images to quantiles of a cohort: a rising, piecewise linear map of intensities.

The quantiles of the foreground of each image, without its gain and offset, are averaged over the
cohort (Nyul and Udupa 1999). The map of an image takes its own quantiles to the average ones. It is
linear between them, and beyond the outermost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.images.foreground import find_foreground

_PERCENTILES = (2.0, 10.0, 25.0, 50.0, 75.0, 90.0, 98.0)
_LOW, _MIDDLE, _HIGH = 1, 3, 5  # of these
_LEAST_LEVEL = 0.1  # below which the middle of intensities is no unit for them
_ROUNDING = 1e-9

Quantiles = tuple[float, ...]


def quantiles_of(voxels: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Return the quantiles of the foreground of an image; None if they do not tell a range."""
    foreground = find_foreground(voxels)
    if not foreground.size:
        return None
    found = np.percentile(foreground, _PERCENTILES)
    return found if found[_HIGH] > found[_LOW] else None


def average_quantiles(images: Iterable[NDArray[np.floating]]) -> Quantiles | None:
    """Return quantiles that stand for all images, with the middle at 1 unless they surround 0.

    Parameters
    ----------
    images : iterable of arrays of shape (C, *space)

    Returns
    -------
    tuple of float, or None
        None if no image has a range.
    """
    known = [found for found in map(quantiles_of, images) if found is not None]
    if not known:
        return None
    ranges = np.stack(known) / [[found[_HIGH] - found[_LOW]] for found in known]
    middles = ranges[:, _MIDDLE]
    average = (ranges - middles[:, None]).mean(axis=0)
    level = float(np.median(middles))
    if abs(level) > _LEAST_LEVEL:
        average = average / abs(level) + np.sign(level)
    return tuple(average.tolist())


@dataclass(frozen=True)
class QuantileMap:
    """A map of intensities, from quantiles of an image to those of a cohort.

    Attributes
    ----------
    own, standard : arrays of shape (n,)
        Both rising.
    """

    own: NDArray[np.float64]
    standard: NDArray[np.float64]

    @classmethod
    def between(cls, own: NDArray[np.float64], standard: Quantiles) -> QuantileMap:
        """Return the map; of quantiles of the image that are the same, one is enough."""
        rises = np.diff(own, prepend=-np.inf) > _ROUNDING * (own[-1] - own[0])
        return cls(own[rises], np.array(standard)[rises])

    def apply(self, voxels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return matched intensities."""
        return _interpolate(voxels, self.own, self.standard)

    def undo(self, voxels: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return the intensities that were matched."""
        return _interpolate(voxels, self.standard, self.own)


def _interpolate(
    voxels: NDArray[np.floating], places: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return a function at voxels that is linear between places, and beyond them as at the ends."""
    segment = np.clip(np.searchsorted(places, voxels) - 1, 0, len(places) - 2)
    slopes = np.diff(values) / np.diff(places)
    mapped = values[segment] + slopes[segment] * (voxels - places[segment])
    return np.asarray(mapped, np.float32)
