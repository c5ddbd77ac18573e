"""Intensities of whole images: how bright an image is, and scaling each by what it holds itself.

The typical intensity of an image is the median size of its foreground. Few hot voxels and a dark
background, even a noisy one, do not move it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.foreground import find_foreground
from anamorph.images.quantiles import QuantileMap, Quantiles, quantiles_of

#: How intensities of an image may be scaled, besides by a number.
SCALINGS = ("none", "robust", "zscore", "match")

#: Those that make images about equally bright.
EQUALISING = ("robust", "zscore", "match")


def typical_intensity(voxels: NDArray[np.floating]) -> float:
    """Return the median size of the foreground of an image (C, *space); 0 if there is none."""
    foreground = find_foreground(voxels)
    return float(np.median(np.abs(foreground))) if foreground.size else 0.0


@dataclass(frozen=True)
class Scaling:
    """What is taken from the intensities of an image, and what the rest is divided by.

    Attributes
    ----------
    shift : float
    size : float
    """

    shift: float
    size: float

    def apply(self, voxels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scaled intensities."""
        return np.asarray((voxels - np.float32(self.shift)) / np.float32(self.size), np.float32)

    def undo(self, voxels: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return the intensities that were scaled."""
        return np.asarray(voxels * np.float32(self.size) + np.float32(self.shift), np.float32)


AS_IT_IS = Scaling(0.0, 1.0)


def find_scaling(
    voxels: NDArray[np.float32],
    scale: str | float | None,
    name: str,
    standard: Quantiles | None = None,
) -> Scaling | QuantileMap:
    """Return how to scale an image.

    Parameters
    ----------
    voxels : array of shape (C, *space)
        NaN where missing.
    scale : str or float, optional
        "robust": divided by the typical intensity of the image, so that this becomes 1.
        "zscore": less the mean of the foreground, and divided by its standard deviation.
        "match": quantiles of the foreground become those of a cohort.
        A number: divided by it. "none", or None, the default: as it is.
    name : str
        What to call the image in an error message.
    standard : tuple of float, optional
        The quantiles of the cohort, for "match".
    """
    if scale is None or scale == "none":
        return AS_IT_IS
    shift, size = 0.0, scale
    own = quantiles_of(voxels) if scale == "match" else None
    if own is not None and standard is not None:
        return QuantileMap.between(own, standard)
    if scale == "robust":
        size = typical_intensity(voxels)
    elif scale == "zscore":
        foreground = find_foreground(voxels)
        if foreground.size:
            shift, size = float(foreground.mean()), float(foreground.std())
        else:
            size = 0.0
    if not (isinstance(size, float | int) and size > 0 and np.isfinite(size)):
        raise ImageError(
            f"{name} cannot be scaled with scale={scale!r}: its foreground is empty or constant; "
            "leave it out, or fit with another scale"
        )
    return Scaling(shift, float(size))


def checked_scale(value: Any) -> str | float | None:
    """Return a way of scaling, or raise an ImageError.

    Parameters
    ----------
    value : {"none", "robust", "zscore", "match"}, positive number, or None
    """
    if value is None or value in SCALINGS:
        return value  # type: ignore[no-any-return]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if isinstance(value, bool) or not (np.isfinite(number) and number > 0):
        raise ImageError(
            f"scale must be one of {', '.join(SCALINGS)}, or a positive number to divide by, got "
            f"{value!r}"
        )
    return number
