"""Intensities of an image of its own: gain, offset and a smooth field, found from what is expected.

Gains of scanners mean nothing, and coils make a scan brighter here than there. The model is then
one of the image h = exp(b(x)) (f + o), with an offset o and a field b of a few cosines with
coefficients c, the first of which is the gain:

    ln p(f | a') = ln p(h | a') + sum_x b(x) - o^2 / (2 s_o^2) - sum_j c_j^2 / (2 s_j^2)

Given the warped appearance a', offset and coefficients are those of the maximum. They are a
function of the image and of a', found by Newton's method whenever an image is compared with what is
expected: nothing of them is stored, and nothing leaves a site. Since they are at their maximum,
the derivatives of ln p(f | a') with respect to a' are those of ln p(h | a').

The sum over x is what scaling does to a density: without it the darkest image would be the most
probable. The priors are weak, and fix what no image can tell: the gain and offset that all share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.cosines import cosines_beside

_N_COSINES = {"per image": 1, "smooth": 3}  # along each axis
_NEWTON_STEPS = {"per image": 3, "smooth": 6}
_LONGEST_STEP = 0.5  # of a coefficient
_GAIN_DEVIATION = 0.1  # of ln(gain), and less for cosines of higher orders
_OFFSET_DEVIATION = 0.3  # standard deviations of the image
_TINY = 1e-12


@dataclass(frozen=True)
class Matched:
    """Images whose intensities are matched to what is expected of them.

    Attributes
    ----------
    images : (N, C, *space)
        h, NaN where missing.
    log_density : (N,)
        What ln p(f | a') is more than ln p(h | a').
    gain : (N, C, *space)
        exp(b).
    offset : (N, C, 1, ...)
        o.
    """

    images: Array
    log_density: Float64Array
    gain: Array
    offset: Array

    def undone(self, matched: Array) -> Array:
        """Return the images f (N, C, *space) whose matched ones h are given."""
        return (matched / self.gain - self.offset).astype(np.float32)


def match_intensities(images: Array, expected: Array, precision: Array, kind: str) -> Matched:
    """Return images with the gain, offset and field that fit best to what is expected of them.

    Parameters
    ----------
    images : (N, C, *space)
        f, NaN where missing. Each channel is matched on its own.
    expected : (N, C, *space)
        a'.
    precision : (C,)
        Inverse noise variance of each channel.
    kind : {"per image", "smooth"}
        Whether there are a gain and an offset, or also a field.

    Returns
    -------
    Matched
    """
    search = _Search(images, expected, precision, kind)
    for _ in range(_NEWTON_STEPS[kind]):
        search.take_step()
    return search.result()


class _Search:
    """Newton's method for the offset and the coefficients of each image and channel."""

    def __init__(self, images: Array, expected: Array, precision: Array, kind: str) -> None:
        rows = (images.shape[0] * images.shape[1], *images.shape[2:])
        self._shape, self._is_seen = images.shape, ~np.isnan(images)
        self._seen = self._is_seen.reshape(rows).astype(np.float32)
        self._image = np.where(self._is_seen, images, np.float32(0)).reshape(rows)
        self._expected = np.where(self._is_seen, expected, np.float32(0)).reshape(rows)
        self._precision = beside(self._image, np.tile(precision, len(images)), np.float64)
        self._cosines = cosines_beside(self._image, _N_COSINES[kind])
        self._pairs_seen = self._cosines.gram(self._seen)
        deviations = _GAIN_DEVIATION / (1 + self._cosines.squared_orders)
        self._weights = beside(self._image, 1 / deviations**2, np.float64)
        self._prior = beside(self._image, np.diag(1 / deviations**2), np.float64)
        self._start()

    def _start(self) -> None:
        """Begin without a field, with the best gain (a root of a square) and offset."""
        count = np.maximum(_sum(self._seen), 1)
        mean = _sum(self._image) / count
        centred = (self._image - _as_images(mean, self._image)) * self._seen
        spread, shared = _sum(centred * centred), _sum(centred * self._expected)
        is_varied = spread > _TINY * count
        spread = np.where(is_varied, spread, 1)
        root = np.sqrt(shared**2 + 4 * count * spread / self._precision)
        gain = np.where(is_varied, (shared + root) / (2 * spread), 1)
        self._coefficients = array_namespace(mean).zeros((len(mean), self._cosines.number))
        self._coefficients[:, 0] = np.log(gain)
        self._offset = _sum(self._expected) / count / gain - mean
        deviation = np.where(is_varied, np.sqrt(spread / count), 1)
        self._offset_weight = 1 / (_OFFSET_DEVIATION * deviation) ** 2

    def take_step(self) -> None:
        """Take Newton's step, with what second derivatives are expected to be."""
        precision, field = self._precision, self._field()
        shifted = (self._image + _as_images(self._offset, field)) * self._seen
        matched, square = field * shifted, field * field * self._seen
        wrong = field * (matched - self._expected) * self._seen
        slope_offset = precision * _sum(wrong) + self._offset_weight * self._offset
        slope = precision[:, None] * self._cosines.sums(wrong * shifted)
        slope += self._weights * self._coefficients - self._pairs_seen[:, 0]
        curve_offset = precision * _sum(square) + self._offset_weight
        mixed = precision[:, None] * self._cosines.sums(square * shifted)
        curve = precision[:, None, None] * self._cosines.gram(matched * matched)
        curve += self._pairs_seen + self._prior
        # The offset is eliminated first: it has another unit than the coefficients.
        curve -= mixed[:, :, None] * (mixed / curve_offset[:, None])[:, None]
        slope -= mixed * (slope_offset / curve_offset)[:, None]
        step = np.linalg.solve(curve, slope[..., None])[..., 0]
        step /= np.maximum(np.abs(step).max(axis=1, keepdims=True) / _LONGEST_STEP, 1)
        self._coefficients -= step
        self._offset -= (slope_offset - (mixed * step).sum(axis=1)) / curve_offset

    def result(self) -> Matched:
        """Return the images as they are matched now."""
        field = self._field()
        matched = (field * (self._image + _as_images(self._offset, field))).reshape(self._shape)
        log_density = (self._pairs_seen[:, 0] * self._coefficients).sum(axis=1)
        log_density -= 0.5 * (self._weights * self._coefficients**2).sum(axis=1)
        log_density -= 0.5 * self._offset_weight * self._offset**2
        return Matched(
            np.where(self._is_seen, matched, np.float32(np.nan)),
            log_density.reshape(self._shape[:2]).sum(axis=1),
            field.reshape(self._shape),
            _as_images(self._offset, field).reshape(
                *self._shape[:2], *(1,) * (len(self._shape) - 2)
            ),
        )

    def _field(self) -> Array:
        """Return exp(b) of every image and channel."""
        return np.exp(self._cosines.combined(self._coefficients))


def _sum(images: Array) -> Float64Array:
    """Return sums over the voxels of images (n, *space), (n,)."""
    total: Float64Array = images.sum(axis=tuple(range(1, images.ndim)), dtype=np.float64)
    return total


def _as_images(numbers: Float64Array, images: Array) -> Array:
    """Return one number per image, (n,), in a shape that goes with images (n, *space)."""
    return numbers.astype(np.float32).reshape(-1, *(1,) * (images.ndim - 1))
