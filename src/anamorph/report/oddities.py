"""What is odd about images, compared with others: flipped, tilted, cropped, of another contrast.

Images are compared with the mean of a model where they are, mirrored and turned by some angles. How
far a measure is from those of the other images is told in robust standard deviations: from the
median, in units of the median absolute deviation. A few bad images do not hide each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, uniform_filter

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.images.grid import Grid
from anamorph.model.posing import PosedGenerator
from anamorph.plots.panels import mean_image

_MAD_TO_DEVIATION = 1.4826
_LONGEST = {2: 64, 3: 28}  # voxels along an axis, of images that are turned
_ANGLES = np.arange(-40.0, 41.0, 8.0)  # degrees
_FOREGROUND = 0.3  # of the range of the mean
_EMPTY = 0.08  # of the range of an image: so near to its background
_SIDES = {
    "R": ("left", "right"),
    "L": ("right", "left"),
    "A": ("back", "front"),
    "P": ("front", "back"),
    "S": ("bottom", "top"),
    "I": ("top", "bottom"),
}


@dataclass(frozen=True)
class Oddities:
    """Measures of N images, each as a column.

    Attributes
    ----------
    correlation : (N,)
        With the mean image.
    mirrored : (N, d)
        What the correlation gains if the image is mirrored along an axis.
    angle : (N, planes)
        By how many degrees the image is turned in each plane of two axes.
    turned : (N,)
        What the correlation gains if it is turned back.
    empty : (N,)
        Share of where the mean has content at which the image has none.
    solid : (N,)
        Share of that part that is in one piece at an end of an axis, as where an image is cropped.
    unseen : (N,)
        Share of where the mean has content at which the image ends, or is missing.
    shift : (N, d)
        How far the centre of the content is from that of the mean, in units of the voxel size.
    emptiest : list of pairs of int
        The axis and the end (0 or 1) of the piece that is empty.
    """

    correlation: Float64Array
    mirrored: Float64Array
    angle: Float64Array
    turned: Float64Array
    empty: Float64Array
    solid: Float64Array
    unseen: Float64Array
    shift: Float64Array
    emptiest: list[tuple[int, int]]


def find_oddities(
    model: ShapeAppearanceModel, images: ImageCollection, poses: Float64Array | None = None
) -> Oddities:
    """Compare images with the mean of a model.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : ImageCollection
        N images as the model needs them, read one at a time.
    poses : array of shape (N, P), optional
        Their poses, in which they are compared; by default they are as they lie.

    Returns
    -------
    Oddities
    """
    (mean,) = mean_image(model)
    against = _Template.of(mean, model.settings_.voxel_size)
    rows = []
    for n in range(len(images)):
        image = images.read(slice(n, n + 1))
        if poses is not None:
            image = PosedGenerator.of(model.generator_, poses[n : n + 1]).unposed(image)
        rows.append(against.measure(image[0]))
    *numbers, places = zip(*rows, strict=True)
    names = (field.name for field in fields(Oddities))
    columns: dict[str, Any] = dict(zip(names, (*map(np.array, numbers), list(places)), strict=True))
    return Oddities(**columns)


def robust_deviations(values: Float64Array, floor: float) -> Float64Array:
    """Return how far values (N,) are from their median, in robust standard deviations.

    Parameters
    ----------
    values : array of shape (N,)
    floor : float
        The least standard deviation.
    """
    return np.asarray((values - np.median(values)) / robust_deviation(values, floor))


def robust_deviation(values: Float64Array, floor: float) -> float:
    """Return the robust standard deviation of values (N,), at least a floor."""
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(values - np.median(values))))
    return max(spread, floor)


def name_of_axis(axis: int, grid: Grid) -> str:
    """Return what mirroring along an axis exchanges, e.g. "left and right" or "rows"."""
    low, high = sides_of_axis(axis, grid)
    return f"{low} and {high}"


def sides_of_axis(axis: int, grid: Grid) -> tuple[str, str]:
    """Return the names of the first and the last end of an axis."""
    if grid.orientation is not None:
        return _SIDES[grid.orientation[axis]]
    if len(grid.space) == 2:
        return (("top", "bottom"), ("left side", "right side"))[axis]
    return f"start of axis {axis}", f"end of axis {axis}"


@dataclass(frozen=True)
class _Template:
    """The mean image that others are compared with.

    Attributes
    ----------
    mean : (C, *space)
    content : (*space) bool
        Where it is not background.
    small : (C, *reduced)
        With fewer voxels, to turn.
    voxel_size : tuple of float
    """

    mean: Array
    content: NDArray[np.bool_]
    small: Array
    voxel_size: tuple[float, ...]

    @classmethod
    def of(cls, mean: Array, voxel_size: tuple[float, ...]) -> _Template:
        size = np.abs(mean - _background_of(mean)).sum(axis=0)
        content = size > _FOREGROUND * np.percentile(size, 98)
        return cls(mean, content, _reduced(mean), voxel_size)

    def measure(self, image: Array) -> tuple[Any, ...]:
        """Return the measures of an image (C, *space), in the order of `Oddities`."""
        small = _reduced(image)
        here = _correlate(small, self.small)
        axes = range(1, image.ndim)
        mirrored = [_correlate(np.flip(small, axis), self.small) - here for axis in axes]
        angles, gain = self._turn(small, here)
        *emptiness, place = self._find_empty(image)
        n_unseen = np.sum(self.content & np.isnan(image).all(axis=0))
        unseen = float(n_unseen / max(self.content.sum(), 1))
        return here, mirrored, angles, gain, *emptiness, unseen, self._find_shift(image), place

    def _turn(self, small: Array, here: float) -> tuple[list[float], float]:
        """Return the angle in each plane at which an image fits best, and what that gains."""
        angles, best = [], here
        for plane in combinations(range(small.ndim - 1), 2):
            values = [
                here if angle == 0 else _correlate(_rotated(small, plane, angle), self.small)
                for angle in _ANGLES
            ]
            angle, value = _peak(np.array(values))
            angles.append(-angle)  # what turns it back has the other sign
            best = max(best, value)
        return angles, best - here

    def _find_empty(self, image: Array) -> tuple[float, float, tuple[int, int]]:
        """Return `empty`, `solid` and `emptiest` of an image."""
        away = np.abs(image - _background_of(image)).max(axis=0)
        spread = np.nanpercentile(away, 98) if np.isfinite(away).any() else 0.0
        is_empty = self.content & ~(away > _EMPTY * spread)  # also where it is missing
        share = float(is_empty.sum() / max(self.content.sum(), 1))
        kept = np.sum(away > _FOREGROUND * spread) / max(self.content.sum(), 1)
        if kept > 1 - share / 2:  # what is not here is elsewhere
            return share, 0.0, (0, 0)
        pieces = {
            (axis, end): _share_at_end(is_empty, self.content, axis, end)
            for axis in range(is_empty.ndim)
            for end in (0, 1)
        }
        place = max(pieces, key=lambda piece: pieces[piece])
        return share, pieces[place], place

    def _find_shift(self, image: Array) -> list[float]:
        """Return how far the centre of an image is from that of the mean."""
        mass = np.nan_to_num(np.abs(image - _background_of(image)).sum(axis=0))
        own = np.abs(self.mean - _background_of(self.mean)).sum(axis=0)
        return [
            size * (_mean_place(mass, axis, _mean_place(own, axis)) - _mean_place(own, axis))
            for axis, size in enumerate(self.voxel_size)
        ]


def _background_of(image: Array) -> Array:
    """Return the median along the border of each channel of an image, (C, 1, ...)."""
    inside = np.zeros(image.shape[1:], bool)
    inside[(slice(1, -1),) * inside.ndim] = True
    border = image[:, ~inside]
    known = [channel[np.isfinite(channel)] for channel in border]
    levels = [float(np.median(values)) if values.size else 0.0 for values in known]
    return np.reshape(np.array(levels, np.float32), (-1, *(1,) * inside.ndim))


def _mean_place(mass: Array, axis: int, otherwise: float = 0.0) -> float:
    """Return the mean index along an axis, weighted by a mass (*space)."""
    along = mass.sum(axis=tuple(other for other in range(mass.ndim) if other != axis), dtype=float)
    return float(along @ np.arange(len(along)) / along.sum()) if along.sum() > 0 else otherwise


def _share_at_end(
    is_empty: NDArray[np.bool_], content: NDArray[np.bool_], axis: int, end: int
) -> float:
    """Return which share of the outermost content is empty, of as much as is empty in all."""
    number = int(is_empty.sum())
    if not number:
        return 0.0
    others = tuple(other for other in range(content.ndim) if other != axis)
    inside, missing = content.sum(axis=others), is_empty.sum(axis=others)
    if end:
        inside, missing = inside[::-1], missing[::-1]
    n_slices = int(np.searchsorted(np.cumsum(inside), number)) + 1
    return float(missing[:n_slices].sum() / number)


def _reduced(image: Array) -> Array:
    """Return an image (C, *space) with fewer voxels, averages of several; NaN where missing."""
    stride = math.ceil(max(image.shape[1:]) / _LONGEST[image.ndim - 1])
    if stride == 1:
        return image
    size = (1, *(stride,) * (image.ndim - 1))
    is_seen = np.isfinite(image)
    total = uniform_filter(np.where(is_seen, image, 0).astype(np.float32), size)
    share = uniform_filter(is_seen.astype(np.float32), size)
    averaged = np.where(share > 0.5, total / np.maximum(share, 1e-6), np.nan)
    return averaged[:, *(slice(stride // 2, None, stride) for _ in range(image.ndim - 1))]


def _rotated(image: Array, plane: tuple[int, ...], angle: float) -> Array:
    """Return an image (C, *space) turned about its middle; its edge extends beyond the grid."""
    n_dims = image.ndim - 1
    matrix = np.eye(n_dims)
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    i, j = plane
    matrix[[i, i, j, j], [i, j, i, j]] = c, -s, s, c
    middle = (np.array(image.shape[1:]) - 1) / 2
    filled = np.where(np.isfinite(image), image, _background_of(image))
    return np.stack(
        [
            affine_transform(channel, matrix, middle - matrix @ middle, order=1, mode="nearest")
            for channel in filled
        ]
    )


def _correlate(image: Array, mean: Array) -> float:
    """Return the correlation of an image with the mean where it is observed; 0 if it is flat."""
    is_seen = np.isfinite(image)
    one, other = image[is_seen].astype(np.float64), mean[is_seen].astype(np.float64)
    if one.size < 2:
        return 0.0
    one, other = one - one.mean(), other - other.mean()
    scale = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / scale if scale > 0 else 0.0


def _peak(values: Float64Array) -> tuple[float, float]:
    """Return the angle at which a parabola through the best of values at `_ANGLES` is highest."""
    best = int(values.argmax())
    if best in (0, len(values) - 1):
        return float(_ANGLES[best]), float(values[best])
    before, here, after = values[best - 1 : best + 2]
    bend = before - 2 * here + after
    offset = 0.0 if bend >= 0 else 0.5 * (before - after) / bend
    step = _ANGLES[1] - _ANGLES[0]
    return float(_ANGLES[best] + offset * step), float(here - 0.25 * (before - after) * offset)
