"""Intensities of an image of its own: gain, offset and a smooth field, found from what is expected.

Gains of scanners mean nothing, and coils make a scan brighter here than there. The model is then
one of the image h = exp(b(x)) (f + o), with an offset o and a field b of a few cosines with
coefficients c, the first of which is ln g, the logarithm of the gain:

    ln p(f | a') = ln p(h | a') + sum_x (b(x) + ln s_f) - o^2 / (2 s_o^2) - sum_j c_j^2 / (2 s_j^2)

Given the warped appearance a', offset and coefficients are those of the maximum. They are a
function of the image and of a', found whenever an image is compared with what is expected: nothing
of them is stored, and nothing leaves a site. Since they are at their maximum, the derivatives of
ln p(f | a') with respect to a' are those of ln p(h | a').

The sum over x is what scaling does to a density: without b the darkest image would be the most
probable. The unit of the density is the standard deviation s_f of the image itself: in a unit that
all share, a scan of half the gain, or a constant image, would be more probable than others. The
priors are weak, and fix what no image can tell: the gain and offset that all share.

Gain and offset alone follow from a few sums over voxels, and are exact; the field is found by
Newton's method from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.cosines import cosines_beside

_N_COSINES = {"per image": 1, "smooth": 3}  # along each axis
_FIELD_STEPS = {"per image": 0, "smooth": 6}
_GAIN_STEPS = 8  # of Newton for one number: what a weak prior changes of a known solution
_LONGEST_STEP = 0.5  # of a coefficient
_GAIN_DEVIATION = 0.1  # of ln(gain), and less for cosines of higher orders
_OFFSET_DEVIATION = 0.3  # standard deviations of the image
_LEAST_DEVIATION = 1e-6  # of an image, relative to its mean: less is rounding
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
    unresolved : (N, C)
        What averaging has lost of the squares of h.
    """

    images: Array
    log_density: Float64Array
    gain: Array
    offset: Array
    unresolved: Float64Array

    def undone(self, matched: Array) -> Array:
        """Return the images f (N, C, *space) whose matched ones h are given."""
        return (matched / self.gain - self.offset).astype(np.float32)


def match_intensities(
    images: Array,
    expected: Array,
    precision: Array,
    kind: str,
    unresolved: Float64Array | None = None,
) -> Matched:
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
    unresolved : (N, C), optional
        What averaging over coarse voxels has lost of the squares of f; nothing by default. It is
        residual that scales with the gain.

    Returns
    -------
    Matched
    """
    if unresolved is None:
        unresolved = array_namespace(images).zeros(images.shape[:2])
    search = _Search(images, expected, precision, kind, unresolved)
    for _ in range(_FIELD_STEPS[kind]):
        search.take_step()
    return search.result()


def deviations(
    images: Array, unresolved: Float64Array | None = None
) -> tuple[Float64Array, Float64Array]:
    """Return how many voxels of images (N, C, *space) are seen, and their s_f, (N, C) each."""
    axes = tuple(range(2, images.ndim))
    is_seen = ~np.isnan(images)
    count = is_seen.sum(axis=axes).astype(np.float64)
    seen, most = np.where(is_seen, images, np.float32(0)), np.maximum(count, 1)
    mean = seen.sum(axis=axes, dtype=np.float64) / most
    wide = (*mean.shape, *(1,) * len(axes))
    centred = np.where(is_seen, images - mean.astype(np.float32).reshape(wide), np.float32(0))
    spread = (centred * centred).sum(axis=axes, dtype=np.float64)
    if unresolved is not None:
        spread = spread + unresolved
    return count, np.sqrt(np.maximum(spread / most, _least_variance(mean)))


def _least_variance(mean: Float64Array) -> Float64Array:
    """Return what the variance of an image is taken to be at least, given its mean."""
    least: Float64Array = (_LEAST_DEVIATION * mean) ** 2 + _TINY
    return least


class _Search:
    """Offset and coefficients of each image and channel: exact without a field, then by Newton."""

    def __init__(
        self,
        images: Array,
        expected: Array,
        precision: Array,
        kind: str,
        unresolved: Float64Array,
    ) -> None:
        rows = (images.shape[0] * images.shape[1], *images.shape[2:])
        self._shape, self._is_seen = images.shape, ~np.isnan(images)
        self._seen = self._is_seen.reshape(rows).astype(np.float32)
        self._image = np.where(self._is_seen, images, np.float32(0)).reshape(rows)
        self._expected = np.where(self._is_seen, expected, np.float32(0)).reshape(rows)
        self._precision = beside(self._image, np.tile(precision, len(images)), np.float64)
        self._unresolved = unresolved.reshape(-1)
        self._cosines = cosines_beside(self._image, _N_COSINES[kind])
        self._pairs_seen = self._cosines.gram(self._seen)
        deviations = _GAIN_DEVIATION / (1 + self._cosines.squared_orders)
        self._weights = beside(self._image, 1 / deviations**2, np.float64)
        self._prior = beside(self._image, np.diag(1 / deviations**2), np.float64)
        self._start()

    def _start(self) -> None:
        """Find the gain and the offset without a field."""
        count = np.maximum(_sum(self._seen), 1)
        mean, expected = _sum(self._image) / count, _sum(self._expected) / count
        centred = (self._image - _as_images(mean, self._image)) * self._seen
        least = count * _least_variance(mean)
        spread = _sum(centred * centred) + self._unresolved
        is_varied, spread = spread > least, np.maximum(spread, least)
        self._deviation = np.sqrt(spread / count)  # s_f
        self._offset_weight = 1 / (_OFFSET_DEVIATION * self._deviation) ** 2
        sums = _GainSums(
            count,
            mean,
            expected,
            spread,
            shared=_sum(centred * self._expected),
            precision=self._precision,
            offset_weight=self._offset_weight,
        )
        log_gain = np.where(is_varied, sums.best_log_gain(), 0)
        self._coefficients = array_namespace(mean).zeros((len(mean), self._cosines.number))
        self._coefficients[:, 0] = log_gain
        self._offset = sums.best_offset(np.exp(log_gain))

    def take_step(self) -> None:
        """Take Newton's step, with what second derivatives are expected to be."""
        precision, field = self._precision, self._field()
        shifted = (self._image + _as_images(self._offset, field)) * self._seen
        matched, square = field * shifted, field * field * self._seen
        wrong = field * (matched - self._expected) * self._seen
        slope_offset = precision * _sum(wrong) + self._offset_weight * self._offset
        slope = precision[:, None] * self._cosines.sums(wrong * shifted)
        slope += self._weights * self._coefficients - self._pairs_seen[:, 0]
        unresolved = precision * self._unresolved_square()
        slope[:, 0] += unresolved
        curve_offset = precision * _sum(square) + self._offset_weight
        mixed = precision[:, None] * self._cosines.sums(square * shifted)
        curve = precision[:, None, None] * self._cosines.gram(matched * matched)
        curve += self._pairs_seen + self._prior
        curve[:, 0, 0] += unresolved
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
        log_density += self._pairs_seen[:, 0, 0] * np.log(self._deviation)
        unresolved = self._unresolved_square()
        log_density -= 0.5 * self._precision * unresolved
        return Matched(
            np.where(self._is_seen, matched, np.float32(np.nan)),
            log_density.reshape(self._shape[:2]).sum(axis=1),
            field.reshape(self._shape),
            _as_images(self._offset, field).reshape(
                *self._shape[:2], *(1,) * (len(self._shape) - 2)
            ),
            unresolved.reshape(self._shape[:2]),
        )

    def _unresolved_square(self) -> Float64Array:
        """Return what averaging has lost of the squares of matched images, (n,)."""
        square: Float64Array = np.exp(2 * self._coefficients[:, 0]) * self._unresolved
        return square

    def _field(self) -> Array:
        """Return exp(b) of every image and channel."""
        return np.exp(self._cosines.combined(self._coefficients))


@dataclass(frozen=True)
class _GainSums:
    """All that gain and offset follow from, one number per image and channel.

    With S = sum (f - mean)^2 and R = sum (f - mean) a', and the offset at its best, the gain
    g = exp(b) minimises

        p (g^2 S - 2 g R) / 2 - n b + b^2 / (2 s_b^2) + n p w d^2 / (2 (n p g^2 + w)),

    where d = mean a' - g mean f, and w is the weight of the offset's prior.
    """

    count: Float64Array
    mean: Float64Array
    expected: Float64Array
    spread: Float64Array
    shared: Float64Array
    precision: Float64Array
    offset_weight: Float64Array

    def best_log_gain(self) -> Float64Array:
        """Return b. Without priors it is the root of a square; Newton's method does the rest."""
        n, spread, shared, precision = self.count, self.spread, self.shared, self.precision
        root = np.sqrt(shared**2 + 4 * n * spread / precision)
        # Where images are the negative of what is expected, the two would cancel.
        gain = np.where(
            shared > 0, shared + root, 4 * n * spread / precision / (root + np.abs(shared))
        )
        log_gain: Float64Array = np.log(gain / (2 * spread))
        for _ in range(_GAIN_STEPS):
            gain = np.exp(log_gain)
            slope = precision * gain * (gain * spread - shared) - n + log_gain / _GAIN_DEVIATION**2
            curve = precision * gain**2 * spread + n + 1 / _GAIN_DEVIATION**2
            of_offset, bend = self._slope_and_curvature_of_offset(gain)
            step = (slope + of_offset) / (curve + bend)
            log_gain = log_gain - np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        return log_gain

    def best_offset(self, gain: Float64Array) -> Float64Array:
        """Return o, given the gain."""
        weight = self.count * self.precision
        missing = self.expected - gain * self.mean
        offset: Float64Array = weight * gain * missing / (weight * gain**2 + self.offset_weight)
        return offset

    def _slope_and_curvature_of_offset(self, gain: Float64Array) -> tuple[Float64Array, ...]:
        """Return derivatives by b of what the offset cannot make up for.

        The second is that of Gauss-Newton. Where an image varies little around a large mean, a
        change of the gain is mostly a change of the mean, and this term is nearly all there is.
        """
        weight = self.count * self.precision
        both = weight * gain**2 + self.offset_weight
        missing = self.expected - gain * self.mean
        motion = gain * (self.mean * self.offset_weight + weight * gain * self.expected) / both
        stiffness = weight * self.offset_weight / both
        return -stiffness * missing * motion, stiffness * motion**2


def _sum(images: Array) -> Float64Array:
    """Return sums over the voxels of images (n, *space), (n,)."""
    total: Float64Array = images.sum(axis=tuple(range(1, images.ndim)), dtype=np.float64)
    return total


def _as_images(numbers: Float64Array, images: Array) -> Array:
    """Return one number per image, (n,), in a shape that goes with images (n, *space)."""
    return numbers.astype(np.float32).reshape(-1, *(1,) * (images.ndim - 1))
