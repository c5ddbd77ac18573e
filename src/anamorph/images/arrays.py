"""A collection of arrays: numbers of any type, read as float32 channels with NaN for missing.

The likelihood of the images says what they are:

- Intensities and probabilities: floats stay; integers are scaled by what they hold (`integers`),
  unless `scale` says how.
- Counts stay as they are, integers included.
- Classes are integer label maps, or probabilities along a channel axis. Probabilities that almost
  sum to 1 are normalised: stored as uint8 they rarely do exactly.

The mask of a `numpy.ma` array marks what is missing, as NaN does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.images.errors import ImageError
from anamorph.images.facts import (
    check_intensities,
    facts_of,
    remark_on_labels,
    remark_on_masks,
    usual_intensity,
)
from anamorph.images.format import BY_CONTENT, BY_TYPE
from anamorph.images.format import ImageFormat as ImageFormat
from anamorph.images.grid import format_shape
from anamorph.images.integers import SCALES, read_unit
from anamorph.images.intensity import Scaling, checked_scale, find_scaling
from anamorph.images.labels import MISSING, as_labels, one_hot
from anamorph.images.quantiles import QuantileMap, average_quantiles
from anamorph.images.rules import (
    ALMOST_ONE,
    check_contrast,
    check_scaling,
    compares_intensities,
    divisor_of,
    found_classes,
    looks_coloured,
    missing_value_of,
)
from anamorph.likelihoods import LIKELIHOODS

_CHECKED_BYTES = 2**24
_LARGEST = float(np.finfo(np.float32).max)

_logger = logging.getLogger(__name__)


class ArrayImages:
    """A collection of images in memory.

    Parameters
    ----------
    images : array of shape (N, *space) or with channels, or list of images
    likelihood : str
        Name of the likelihood that will explain them, e.g. "gaussian".
    channel_axis : int, optional
        Axis of the stacked array that holds channels or classes; by default there is none.
    n_classes : int, optional
        Number of classes of label maps 0, 1, 2, ...; by default there is one for each label.
    scale : {"none", "robust", "zscore", "match"} or float, optional
        How to scale intensities (see `find_scaling`); by default floats stay, and integers are
        divided by what stands for 1 among them.
    like : ImageFormat, optional
        Format of the images that a model was fitted to, by whose rules these are read; it
        overrides `n_classes` and `scale`. By default rules are found from the images.
    missing_value : float, optional
        Value that stands for missing, besides NaN; that of `like` by default.

    Attributes
    ----------
    format : ImageFormat
    """

    def __init__(
        self,
        images: ArrayLike | Sequence[Any],
        likelihood: str,
        channel_axis: int | None = None,
        n_classes: int | None = None,
        *,
        scale: str | float | None = None,
        like: ImageFormat | None = None,
        missing_value: float | None = None,
    ) -> None:
        self._items, dtype = _checked_items(images)
        shape = (len(self._items), *self._items[0].shape)
        _check_dimensions(shape, channel_axis)
        self._channel_axis = None if channel_axis is None else channel_axis % len(shape)
        self._likelihood = LIKELIHOODS[likelihood]
        self._has_labels = self._likelihood.holds_classes and channel_axis is None
        self._for_model = like is not None
        self._missing_value = missing_value_of(missing_value, like)
        scale = like.scale if like is not None else checked_scale(scale)
        check_scaling(self._likelihood, scale, has_labels=self._has_labels)
        self._check_dtype(dtype)
        if like is None:
            self._check_colours(shape, dtype)
        unit = self._find_unit(dtype, scale, like)
        self._divisor = divisor_of(dtype, unit)
        space = list(shape[1:])
        n_channels, labels = 1, None
        if self._channel_axis is not None:
            n_channels = space.pop(self._channel_axis - 1)
        elif self._has_labels:
            n_channels, labels = found_classes(self._label_maps(), self.name, n_classes, like)
        self.format = ImageFormat(
            likelihood,
            tuple(space),
            n_channels,
            self._channel_axis,
            scale,
            unit,
            labels,
            self._missing_value,
            None if like is None else like.quantiles,
        )
        if scale == "match" and like is None:
            raw = (
                self._with_channels(self._read_raw(slice(n, n + 1)))[0] for n in range(len(self))
            )
            self.format = replace(self.format, quantiles=average_quantiles(raw))

    #: Arrays know neither the size nor the place of their voxels, and have no files.
    voxel_size = None
    affine = None
    pad = 0
    suffix = None
    #: Typical intensity of the images, known once they were checked for a fit.
    typical: float | None = None

    @property
    def identities(self) -> range:
        """Numbers that tell images apart: 0 to N - 1."""
        return range(len(self))

    def __len__(self) -> int:
        return len(self._items)

    def name(self, n: int) -> str:
        """Return what to call an image in an error message."""
        return f"image {n}"

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        raw = self._read_raw(part)
        if self._has_labels:
            return one_hot(as_labels("X", raw), self.format.class_labels)
        images = self._with_channels(raw)
        if self._likelihood.holds_classes:
            normalise(images, axis=1)
        if self.format.scale is not None:
            for n, image in zip(range(len(self))[part], images, strict=True):
                image[...] = self._scaling_of(n, image).apply(image)
        return images

    def _with_channels(self, raw: NDArray[Any]) -> NDArray[np.float32]:
        """Return images (n, C, *space), integers divided by what stands for 1."""
        with np.errstate(over="ignore"):  # refused when values are checked
            images = raw.astype(np.float32)
        if self._divisor != 1:
            images /= np.float32(self._divisor)
        if self._channel_axis is None:
            return images[:, None]
        return np.ascontiguousarray(np.moveaxis(images, self._channel_axis, 1))

    def unscaled(self, n: int, image: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return a scaled image (C, *space) in the intensities of image n."""
        if self.format.scale is None:
            return image
        (own,) = self._with_channels(self._read_raw(slice(n, n + 1)))
        return self._scaling_of(n, own).undo(image)

    def _scaling_of(self, n: int, own: NDArray[np.float32]) -> Scaling | QuantileMap:
        return find_scaling(own, self.format.scale, self.name(n), self.format.quantiles)

    def _read_raw(self, part: slice) -> NDArray[Any]:
        """Return images as they were given, with NaN where a value stands for missing."""
        raw = np.asarray(self._items[part])
        if self._missing_value is None:
            return raw
        return np.where(raw == self._missing_value, np.nan, raw)

    def _label_maps(self) -> Iterator[NDArray[np.int32]]:
        """Yield the labels of each image."""
        for n in range(len(self)):
            raw = self._read_raw(slice(n, n + 1))
            yield as_labels(self.name(n), raw, for_model=self._for_model)

    def subset(self, numbers: Sequence[int]) -> ArrayImages:
        """Return a collection of some of the images."""
        some = copy(self)
        items = self._items
        some._items, _ = _checked_items(
            items[list(numbers)] if isinstance(items, np.ndarray) else [items[n] for n in numbers]
        )
        return some

    def check(self, *, for_fit: bool, usual: float | None = None) -> None:
        """Read every image once, and raise an ImageError if one cannot be used.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then, and so are
            intensities that differ absurdly. Less than absurd is logged.
        usual : float, optional
            Typical intensity of the images of a model, which these should have about; by default
            they are not compared with any.
        """
        image_bytes = 4 * self.format.n_channels * int(np.prod(self.format.space))
        step = max(1, _CHECKED_BYTES // image_bytes)
        compares = for_fit or usual is not None
        compares &= compares_intensities(self._likelihood, self.format.scale)
        facts = []
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            raw = self._read_raw(part)
            if self._has_labels:
                raw = as_labels("X", raw)
            self._check_observed(raw, first)
            if not self._has_labels:
                self._check_values(raw, first)
                if self._likelihood.holds_classes:
                    self._check_probabilities(raw, first)
            if for_fit and not self._likelihood.accepts_constant:
                check_contrast(raw, first, self.name)
            if compares or self.format.scale is not None:
                images = self.read(part)  # scaling fails where there is nothing to scale by
                facts += [facts_of(image) for image in images] if compares else []
        if not facts:
            return
        remarks = [check_intensities(facts, self.name, usual)]
        if for_fit:
            self.typical = usual_intensity(facts)
            remarks += remark_on_labels(facts, self.name), remark_on_masks(facts, self.name)
        for remark in filter(None, remarks):
            _logger.warning("%s", remark)

    # ---- checks

    def _check_dtype(self, dtype: np.dtype[Any]) -> None:
        if self._has_labels and dtype.kind not in "biu":
            if self._for_model:
                raise ImageError(
                    f"the model was fitted to label maps, integers, got {dtype}; give label maps"
                )
            raise ImageError(
                f"{self._likelihood.name} images without channel_axis must be integer label maps, "
                f"got {dtype}; give channel_axis if they are probabilities of classes"
            )
        if dtype.kind not in "biuf":
            raise ImageError(
                f"images must be float, bool, uint8 or uint16, got {dtype}; convert them, e.g. by "
                "images.astype('float32')"
            )

    def _check_colours(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if self._channel_axis is None and not self._has_labels and looks_coloured(shape[1:], dtype):
            raise ImageError(
                f"X has shape {shape} and holds uint8: if its last axis holds colours, give "
                "channel_axis=-1; if it is a third axis in space, give floats, X / 255"
            )

    def _find_unit(
        self, dtype: np.dtype[Any], scale: str | float | None, like: ImageFormat | None
    ) -> float | str:
        """Return the integer that stands for 1, or the rule that finds it."""
        known = BY_CONTENT if like is None else like.unit
        is_scaled = self._likelihood.scales_integers and not self._has_labels and scale is None
        is_open = known == BY_CONTENT or (known == BY_TYPE and dtype not in SCALES)
        if dtype.kind in "iu" and is_scaled and is_open:
            return read_unit(
                self._channels_first(), dtype, "X", as_they_are=False, for_model=like is not None
            )
        return known

    def _channels_first(self) -> Iterator[NDArray[Any]]:
        """Yield images as they were given, with the channels in front."""
        for n in range(len(self)):
            raw = self._read_raw(slice(n, n + 1))
            yield raw if self._channel_axis is None else np.moveaxis(raw, self._channel_axis, 1)

    def _check_observed(self, raw: NDArray[Any], first: int) -> None:
        missing = raw == MISSING if self._has_labels else np.isnan(raw)
        for n in np.flatnonzero(missing.all(axis=tuple(range(1, raw.ndim)))):
            raise ImageError(f"image {first + n} is all NaN: nothing is observed; leave it out")

    def _check_values(self, raw: NDArray[Any], first: int) -> None:
        axes = tuple(range(1, raw.ndim))
        if raw.dtype.kind == "f":
            for n in np.flatnonzero(np.isinf(raw).any(axis=axes)):
                raise ImageError(f"image {first + n} contains infinity; NaN marks missing voxels")
            size = np.nanmax(np.abs(raw), axis=axes).astype(np.float64)
            for n in np.flatnonzero(size > _LARGEST):
                raise ImageError(
                    f"image {first + n} has values up to {size[n]:.4g}, and images are computed "
                    f"with as float32, up to {_LARGEST:.2g}: divide all by one number"
                )
        divisor = self._divisor
        if isinstance(self.format.scale, float):
            divisor = self.format.scale
        lowest, highest = np.nanmin(raw) / divisor, np.nanmax(raw) / divisor
        if not self._likelihood.accepts(lowest, highest):
            raise ImageError(
                f"{self._likelihood.name} images must have {self._likelihood.range_words}, got "
                f"{lowest:.4g} to {highest:.4g} in images {first} to {first + len(raw) - 1}; "
                f"{self._likelihood.range_advice}"
            )

    def _check_probabilities(self, raw: NDArray[Any], first: int) -> None:
        total = raw.astype(np.float32).sum(axis=self._channel_axis) / self._divisor
        wrong = np.abs(total - 1) > ALMOST_ONE  # not where it is NaN
        for n in np.flatnonzero(wrong.any(axis=tuple(range(1, total.ndim)))):
            raise ImageError(
                f"probabilities of classes must sum to 1, got {total[n][wrong[n]][0]:.4g} in image "
                f"{first + n}; add a background class or normalise them"
            )


def _checked_items(
    images: ArrayLike | Sequence[Any],
) -> tuple[NDArray[Any] | list[NDArray[Any]], np.dtype[Any]]:
    """Return unconverted images of one shape and type, as an array or a list of arrays.

    What a mask hides is NaN, in floats that hold the integers exactly; the type is the original.
    """
    if not isinstance(images, list | tuple):
        array, dtype = _unmasked(images)
        check_are_several(array, images)
        if len(array) == 0:
            raise ImageError("no images: the array is empty")
        return array, dtype
    if not images:
        raise ImageError("no images: the list is empty")
    items, dtypes = zip(*map(_unmasked, images), strict=True)
    shape, dtype = items[0].shape, dtypes[0]
    for n, other in enumerate(items):
        if other.shape != shape:
            raise ImageError(
                f"all images must have one shape: image 0 is {format_shape(shape)} and image "
                f"{n} is {format_shape(other.shape)}; crop, pad or resample them"
            )
        if dtypes[n] != dtype:
            raise ImageError(
                f"all images must have one type: image 0 is {dtype} and image {n} is "
                f"{dtypes[n]}; convert them"
            )
    return list(items), dtype


def check_are_several(array: NDArray[Any], given: object) -> None:
    """Raise an ImageError if what was given as images is one thing for NumPy, e.g. a generator.

    Parameters
    ----------
    array : array
        What NumPy makes of it, which takes nothing out of a generator.
    given : object
    """
    if array.ndim:
        return
    is_path = isinstance(given, str | os.PathLike)
    what = f"one path, {str(given)!r}" if is_path else f"one {type(given).__name__}"
    raise ImageError(
        f"images must be an array (N, *space), a list of arrays or a list of files, got {what}: "
        "make it one of these"
    )


def _unmasked(images: Any) -> tuple[NDArray[Any], np.dtype[Any]]:
    """Return an array, NaN where a mask hides something, and the type that it had."""
    if type(images).__module__.startswith("scipy.sparse"):
        raise ImageError(
            f"images must be arrays, got a sparse {type(images).__name__}: a row of it is no "
            "image; give X.toarray() in the shape (N, *space)"
        )
    try:
        array = np.asanyarray(images)
    except ValueError as error:
        raise ImageError(f"images must be arrays of one shape: {error}") from None
    if not np.ma.isMaskedArray(array) or not np.ma.getmaskarray(array).any():
        return np.asarray(array), array.dtype
    if array.dtype.kind not in "biuf":
        return np.asarray(array), array.dtype  # refused by its type
    exact = np.result_type(array.dtype, np.float32)
    return np.ma.filled(np.ma.asarray(array).astype(exact), np.nan), array.dtype


def _check_dimensions(shape: tuple[int, ...], channel_axis: int | None) -> None:
    n_dims = len(shape) - 1 - (channel_axis is not None)
    if channel_axis is not None and (
        not isinstance(channel_axis, int | np.integer)
        or not -len(shape) <= channel_axis < len(shape)
        or channel_axis % len(shape) == 0
    ):
        raise ImageError(
            f"channel_axis must be an axis of X other than the first, from 1 to {len(shape) - 1} "
            f"or -1 to {1 - len(shape)} for shape {shape}, or None; got {channel_axis!r}"
        )
    if n_dims not in (2, 3):
        with_channels = "" if channel_axis is None else " and channels"
        raise ImageError(
            f"images must have 2 or 3 spatial axes: X must be (N, *space){with_channels}, got "
            f"shape {shape} with channel_axis={channel_axis}"
        )
    if 0 in shape:
        raise ImageError(f"images must not be empty, got shape {shape}")


def normalise(probabilities: NDArray[np.float32], axis: int) -> None:
    """Make probabilities of classes sum to 1; NaN in one class makes the voxel missing."""
    probabilities /= probabilities.sum(axis=axis, keepdims=True)
