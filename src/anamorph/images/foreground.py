"""The foreground of an image: what is not background, which is found and not assumed.

The background is what the border of an image is mostly made of: one exact value that a program has
filled in, or one of two classes of intensities (Otsu's threshold) that hardly varies, as air does
around a head. Crops from within have neither: all of them is foreground. Nothing depends on gain or
offset of the intensities.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_FILLED = 0.5  # share of the border that has one exact value
_BARELY = 0.1  # share of the border that says nothing about air
_SURROUNDING = 0.6  # share of the border that is of one class
_FLAT = 0.15  # spread of the background, over its distance to the other class
_BINS = 128
_OUTERMOST = (0.5, 99.5)  # percentiles between which classes are told apart
_MAD_TO_DEVIATION = 1.4826
_MOST_LOOKED_AT = 16  # images of a collection


def find_foreground(voxels: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the observed values of an image (C, *space) that are not its background, in a row."""
    is_seen = np.isfinite(voxels)
    values = np.asarray(voxels[is_seen], np.float64)
    if not values.size:
        return values
    border = np.asarray(voxels[is_seen & _on_border(voxels.shape)], np.float64)
    if not border.size:
        border = values
    found, counts = np.unique(border, return_counts=True)
    if counts.max() >= _FILLED * border.size:
        filled = found[counts.argmax()]
        rest: NDArray[np.float64] = values[values != filled]
        if not rest.size:
            return rest if filled == 0 else values
        values, border = rest, border[border != filled]
        if border.size <= _BARELY * counts.sum():
            return values
    return _without_air(values, border)


def are_crops(read: Callable[[int], NDArray[np.floating]], n_images: int) -> bool:
    """Return whether most images show no background: they were cut out of something larger.

    Parameters
    ----------
    read : callable
        Returns an image (C, *space), NaN where missing, given its number.
    n_images : int
        Of which some are looked at.
    """
    looked_at = range(0, n_images, -(-n_images // _MOST_LOOKED_AT))
    return 2 * sum(_is_crop(read(n)) for n in looked_at) > len(looked_at)


def _is_crop(voxels: NDArray[np.floating]) -> bool:
    return find_foreground(voxels).size == int(np.isfinite(voxels).sum()) > 0


def _on_border(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where voxels of an image (C, *space) are outermost along an axis."""
    inside = np.zeros(shape, bool)
    inside[:, *(slice(1, -1) for _ in shape[1:])] = True
    return ~inside


def _without_air(values: NDArray[np.float64], border: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values without those of a class that surrounds the others and hardly varies."""
    threshold = find_threshold(values)
    if threshold is None:
        return values
    classes = (values < threshold, values >= threshold)
    middles = [float(np.median(values[members])) for members in classes]
    share_below = float((border < threshold).mean())
    around = 0 if share_below >= 0.5 else 1
    spread = _MAD_TO_DEVIATION * np.median(np.abs(values[classes[around]] - middles[around]))
    is_flat = spread < _FLAT * (middles[1] - middles[0])
    surrounds = max(share_below, 1 - share_below) >= _SURROUNDING
    return values[classes[1 - around]] if is_flat and surrounds else values


def find_threshold(values: NDArray[np.float64]) -> float | None:
    """Return Otsu's threshold between two classes of values; None if they are all the same."""
    lowest, highest = np.percentile(values, _OUTERMOST)
    if not highest > lowest:
        return None
    counts, edges = np.histogram(np.clip(values, lowest, highest), _BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    below, total = np.cumsum(counts)[:-1], np.cumsum(counts * centres)[:-1]
    above = values.size - below
    apart = total / np.maximum(below, 1) - (counts @ centres - total) / np.maximum(above, 1)
    between = below * above * apart**2
    return float(edges[1:-1][between.argmax()])
