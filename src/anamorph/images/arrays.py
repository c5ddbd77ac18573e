"""A collection of arrays: numbers of any type, read as float32 channels with NaN for missing.

The likelihood of the images says what they are:

- Intensities and probabilities: bool, uint8 and uint16 are scaled to [0, 1]; floats stay.
- Counts stay as they are, integers included.
- Classes are integer label maps, or probabilities along a channel axis. Probabilities that almost
  sum to 1 are normalised: stored as uint8 they rarely do exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.images.errors import ImageError
from anamorph.images.grid import format_shape
from anamorph.images.labels import MOST_CLASSES, one_hot
from anamorph.likelihoods import LIKELIHOODS

SCALES = {np.dtype(bool): 1.0, np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}
ALMOST_ONE = 0.05  # how far a sum of probabilities may be from 1 and still be normalised
_CHECKED_BYTES = 2**24


@dataclass(frozen=True)
class ImageFormat:
    """How the images of a model look as arrays.

    Attributes
    ----------
    likelihood : str
    space : tuple of int
    n_channels : int
    channel_axis : int or None
        Axis of channels in the stack of all images; None if there is none.
    """

    likelihood: str
    space: tuple[int, ...]
    n_channels: int
    channel_axis: int | None

    @property
    def holds_labels(self) -> bool:
        """Whether images are integer label maps, one channel per class inside."""
        return LIKELIHOODS[self.likelihood].holds_classes and self.channel_axis is None

    @property
    def n_classes(self) -> int | None:
        """Number of classes of label maps; None if images are not label maps."""
        return self.n_channels if self.holds_labels else None

    def check_like(self, wanted: ImageFormat, name: str) -> None:
        """Raise an ImageError unless images have the shape and the channels of a model.

        Parameters
        ----------
        wanted : ImageFormat
            That of the model.
        name : str
            What to call the image in an error message.
        """
        for what, given, expected in (
            ("shape", self.space, wanted.space),
            ("number of channels", self.n_channels, wanted.n_channels),
        ):
            if given != expected:
                raise ImageError(
                    f"{name} must have the {what} of the images that the model was fitted to, "
                    f"{expected}, got {given}"
                )

    def to_user(self, images: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return images (N, C, *space) with channels on the axis that the user chose.

        Probabilities of classes have the classes last where the user gave label maps.
        """
        if self.channel_axis is not None:
            return np.moveaxis(images, 1, self.channel_axis)
        return np.moveaxis(images, 1, -1) if self.holds_labels else images[:, 0]


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
        Number of classes of label maps; by default one more than the largest label.

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
    ) -> None:
        self._items = _checked_items(images)
        dtype = self._items[0].dtype
        shape = (len(self._items), *self._items[0].shape)
        _check_dimensions(shape, channel_axis)
        self._channel_axis = None if channel_axis is None else channel_axis % len(shape)
        self._likelihood = LIKELIHOODS[likelihood]
        scales = SCALES if self._likelihood.scales_integers else {}
        self._scale = scales.get(dtype, 1.0)
        self._check_dtype(dtype)
        space = list(shape[1:])
        n_channels = 1
        if self._channel_axis is not None:
            n_channels = space.pop(self._channel_axis - 1)
        elif self._likelihood.holds_classes:
            n_channels = self._count_classes(n_classes)
        self.format = ImageFormat(likelihood, tuple(space), n_channels, self._channel_axis)

    #: Arrays know neither the size nor the place of their voxels, and have no files.
    voxel_size = None
    affine = None
    pad = 0
    suffix = None

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
        raw = np.asarray(self._items[part])
        if self.format.holds_labels:
            return one_hot(raw, self.format.n_channels)
        images = raw.astype(np.float32)
        if self._scale != 1:
            images /= np.float32(self._scale)
        if self._channel_axis is None:
            return images[:, None]
        images = np.ascontiguousarray(np.moveaxis(images, self._channel_axis, 1))
        if self._likelihood.holds_classes:
            normalise(images, axis=1)
        return images

    def subset(self, numbers: Sequence[int]) -> ArrayImages:
        """Return a collection of some of the images."""
        some = copy(self)
        items = self._items
        some._items = _checked_items(
            items[list(numbers)] if isinstance(items, np.ndarray) else [items[n] for n in numbers]
        )
        return some

    def check(self, *, for_fit: bool) -> None:
        """Read every image once, and raise an ImageError if one cannot be used.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then.
        """
        image_bytes = 4 * self.format.n_channels * int(np.prod(self.format.space))
        step = max(1, _CHECKED_BYTES // image_bytes)
        for first in range(0, len(self), step):
            raw = np.asarray(self._items[first : first + step])
            if not self.format.holds_labels:
                self._check_values(raw, first)
                if self._likelihood.holds_classes:
                    self._check_probabilities(raw, first)
            if for_fit and not self._likelihood.accepts_constant:
                check_contrast(raw, first, self.name)

    # ---- checks

    def _check_dtype(self, dtype: np.dtype[Any]) -> None:
        labels = self._likelihood.holds_classes and self._channel_axis is None
        is_integer = dtype.kind in "biu"
        if labels and not is_integer:
            raise ImageError(
                f"{self._likelihood.name} images without channel_axis must be integer label maps, "
                f"got {dtype}; give channel_axis if they are probabilities of classes"
            )
        has_known_range = dtype in SCALES or not self._likelihood.scales_integers
        if labels or dtype.kind == "f" or (is_integer and has_known_range):
            return
        if not is_integer or not all(map(holds_only_zeros_and_ones, self._items)):
            raise ImageError(
                f"images must be float, bool, uint8 or uint16, got {dtype}, whose range says "
                "nothing about the values; convert them, e.g. by images.astype('float32')"
            )

    def _count_classes(self, n_classes: int | None) -> int:
        lowest, highest = 0, 1
        for n, labels in enumerate(self._items):
            lowest, highest = min(lowest, int(labels.min())), max(highest, int(labels.max()))
            if lowest < 0:
                raise ImageError(f"labels must be 0, 1, 2, ..., got {lowest} in image {n}")
            if n_classes is not None and highest >= n_classes:
                raise ImageError(
                    f"labels must be below {n_classes}, the number of classes of the model, got "
                    f"{highest} in image {n}"
                )
            if highest >= MOST_CLASSES:
                raise ImageError(
                    f"labels must be below {MOST_CLASSES}, got {highest} in image {n}; are these "
                    "label maps?"
                )
        return highest + 1 if n_classes is None else n_classes

    def _check_values(self, raw: NDArray[Any], first: int) -> None:
        axes = tuple(range(1, raw.ndim))
        if raw.dtype.kind == "f":
            for n in np.flatnonzero(np.isinf(raw).any(axis=axes)):
                raise ImageError(f"image {first + n} contains infinity; NaN marks missing voxels")
            for n in np.flatnonzero(np.isnan(raw).all(axis=axes)):
                raise ImageError(f"image {first + n} is all NaN: nothing is observed; leave it out")
        lowest, highest = np.nanmin(raw) / self._scale, np.nanmax(raw) / self._scale
        if not self._likelihood.accepts(lowest, highest):
            raise ImageError(
                f"{self._likelihood.name} images must have {self._likelihood.range_words}, got "
                f"{lowest:.4g} to {highest:.4g} in images {first} to {first + len(raw) - 1}; "
                f"{self._likelihood.range_advice}"
            )

    def _check_probabilities(self, raw: NDArray[Any], first: int) -> None:
        total = raw.astype(np.float32).sum(axis=self._channel_axis) / self._scale
        wrong = np.abs(total - 1) > ALMOST_ONE  # not where it is NaN
        for n in np.flatnonzero(wrong.any(axis=tuple(range(1, total.ndim)))):
            raise ImageError(
                f"probabilities of classes must sum to 1, got {total[n][wrong[n]][0]:.4g} in image "
                f"{first + n}; add a background class or normalise them"
            )


def _checked_items(images: ArrayLike | Sequence[Any]) -> NDArray[Any] | list[NDArray[Any]]:
    """Return unconverted images of one shape and type, as an array or a list of arrays."""
    if not isinstance(images, list | tuple):
        array = np.asarray(images)
        if array.ndim == 0 or len(array) == 0:
            raise ImageError("no images: the array is empty")
        return array
    if not images:
        raise ImageError("no images: the list is empty")
    items = [np.asarray(item) for item in images]
    shape, dtype = items[0].shape, items[0].dtype
    for n, other in enumerate(items):
        if other.shape != shape:
            raise ImageError(
                f"all images must have one shape: image 0 is {format_shape(shape)} and image "
                f"{n} is {format_shape(other.shape)}; crop, pad or resample them"
            )
        if other.dtype != dtype:
            raise ImageError(
                f"all images must have one type: image 0 is {dtype} and image {n} is "
                f"{other.dtype}; convert them"
            )
    return items


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


def holds_only_zeros_and_ones(image: NDArray[Any]) -> bool:
    """Return whether integers stand for themselves, whatever their type."""
    return bool(((image == 0) | (image == 1)).all())


def normalise(probabilities: NDArray[np.float32], axis: int) -> None:
    """Make probabilities of classes sum to 1; NaN in one class makes the voxel missing."""
    probabilities /= probabilities.sum(axis=axis, keepdims=True)


def check_contrast(images: NDArray[Any], first: int, name: Callable[[int], str]) -> None:
    """Raise an ImageError if an image is constant.

    An image with missing voxels may be constant where it is observed: NaN equals nothing.

    Parameters
    ----------
    images : array of shape (n, ...)
    first : int
        Number of the first of them in its collection.
    name : callable
        Returns what to call an image, given its number.
    """
    axes = tuple(range(1, images.ndim))
    for n in np.flatnonzero(images.min(axis=axes) == images.max(axis=axes)):
        raise ImageError(
            f"{name(first + int(n))} is constant ({images[n].flat[0]}): there is nothing to learn "
            "from it; leave it out"
        )
