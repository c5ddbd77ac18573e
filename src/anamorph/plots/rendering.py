"""Values as colours: the range from black to white, and the colour of every class.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. The background of
label and tissue maps is black, whichever class it is; missing voxels have a colour of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from anamorph.arrays.typing import Array
from anamorph.likelihoods import LIKELIHOODS

Limits = tuple[float, float]

BACKGROUND = "#000000"
HUES = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#FFFFFF")
MISSING = "#CC79A7"

_PERCENTILES = (0.5, 99.5)
_TOLERANCE = 0.05  # how far values may leave [0, 1] and still be shown on that scale


def background_class(images: Array) -> int:
    """Return the class that is most probable along the border of the grid.

    The background is the first class of label maps and the last of tissue maps, but no file says
    so. It surrounds everything else.

    Parameters
    ----------
    images : array of shape (N, C, *space)
        Probabilities of classes, NaN where missing.
    """
    inside = np.zeros(images.shape[2:], bool)
    inside[(slice(1, -1),) * inside.ndim] = True
    border = images[:, :, ~inside]
    observed = np.isfinite(border)
    total = np.where(observed, border, 0).sum(axis=(0, 2))
    return int(np.argmax(total / np.maximum(observed.sum(axis=(0, 2)), 1)))


def class_colours(n_classes: int, background: int = 0) -> NDArray[np.float64]:
    """Return the colours of classes, (n_classes, 3): black for the background, then hues.

    With more classes than hues, hues repeat in paler versions.
    """
    n_rounds = max(1, -(-(n_classes - 1) // len(HUES)))
    hues = np.array([to_rgb(hue) for hue in HUES])
    paler = [hues + (1 - hues) * r / n_rounds for r in range(n_rounds)]
    others = np.concatenate(paler)[: n_classes - 1]
    return np.insert(others, background, to_rgb(BACKGROUND), axis=0)


def channel_colours(n_channels: int) -> NDArray[np.float64]:
    """Return the colours of channels, (C, 3), whose sum is at most white.

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
    """The colours of images.

    Attributes
    ----------
    colours : array of shape (C, 3)
        Colour that each channel or class adds to a voxel.
    lowest, highest : arrays of shape (C,)
        Values at which a channel adds none and all of its colour.
    """

    colours: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]

    def rgb(self, image: Array) -> Array:
        """Return an image (C, *space) as RGB (3, *space); missing voxels have their own colour."""
        each = (-1, *(1,) * (image.ndim - 1))
        low, high = self.lowest.reshape(each), self.highest.reshape(each)
        is_missing = np.isnan(image).any(axis=0)
        share = np.clip((np.nan_to_num(image) - low) / (high - low), 0, 1)
        mixed = np.clip(np.tensordot(self.colours.T, share, axes=1), 0, 1)
        missing = np.reshape(to_rgb(MISSING), (3, *(1,) * is_missing.ndim))
        return np.where(is_missing, missing, mixed)


def palette_of(
    images: Array,
    likelihood: str,
    limits: Limits | None = None,
    background: int | None = None,
) -> Palette:
    """Return the colours for images of a likelihood.

    Parameters
    ----------
    images : array of shape (N, C, *space)
        Images whose values decide what is black and what is white: 0 and 1 if all values are
        between them and some reach one half, else the range of 99 % of the values. Red, green
        and blue share one range; other channels have one each.
    likelihood : str
        Where its values have bounds, those are black and white: 0 and 1 for probabilities, 0 for
        counts.
    limits : pair of float, optional
        Values to show as black and white; by default from the images.
    background : int, optional
        The class that is black; by default the most probable class along the border.

    Returns
    -------
    Palette
    """
    n_channels = images.shape[1]
    kind = LIKELIHOODS[likelihood]
    if kind.holds_classes:
        background = background_class(images) if background is None else background
        colours, limits = class_colours(n_channels, background), kind.value_range
    else:
        colours = channel_colours(n_channels)
    if limits is not None:
        if not (np.isfinite(limits).all() and limits[0] < limits[1]):
            raise ValueError(f"limits must be two increasing numbers, got {limits!r}")
        ranges = [limits] * n_channels
    elif n_channels == 3:
        ranges = [_find_range(images, kind.value_range)] * 3
    else:
        ranges = [_find_range(images[:, c], kind.value_range) for c in range(n_channels)]
    lowest, highest = np.array(ranges, np.float64).T
    return Palette(colours, lowest, highest)


def _find_range(values: Array, bounds: Limits) -> Limits:
    """Return the bounds where they are finite, and about the range of the values elsewhere."""
    observed = values[np.isfinite(values)]
    if observed.size == 0:
        return 0.0, 1.0
    low, high = map(float, np.percentile(observed, _PERCENTILES))
    low, high = (b if np.isfinite(b) else v for b, v in zip(bounds, (low, high), strict=True))
    if low >= -_TOLERANCE and 0.5 <= high <= 1 + _TOLERANCE:
        return 0.0, 1.0
    return (low, high) if low < high else (low, low + 1)
