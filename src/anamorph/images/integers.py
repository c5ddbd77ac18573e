"""What integers stand for: found from the values that a collection holds, not from their type.

Masks of 0 and 1 stand for themselves whatever their type is. Pictures of 8, 10, 12, 14 or 16 bits
stand for 0 to 1, by the fewest bits that hold all their values. Where integers look like labels,
or nothing tells their range, the user is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.likelihoods import OF_CLASSES

#: The value that stands for 1 by type.
SCALES = {np.dtype(bool): 1.0, np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}

#: Grey images have more different values; label maps of organs rarely do.
FEW = 12

_BITS = (8, 10, 12, 14, 16)
_MOST_LABELS = 256
_SCALE = "scale='none' (--scale none) for as they are, or scale=N for the value N that stands for 1"
_HOW_TO_READ_LABELS = (
    f": use likelihood={OF_CLASSES!r} (--labels) if they are; if they are intensities, say how to "
    f"read them: {_SCALE}"
)
_HOW_TO_READ = f"Use likelihood={OF_CLASSES!r} for label maps, or say how to read them: {_SCALE}"
# A fitted model has its rules: what can be changed are the images, or the model.
_NOT_FOR_LABELS = (
    ", and the model was not fitted to labels: give images such as it was fitted to, e.g. the "
    f"scans that they were drawn on, or fit a model with likelihood={OF_CLASSES!r} (--labels)"
)
_CONVERT = "Convert them to the type of the images that the model was fitted to"
_FLAT = 0.8  # share of equal neighbours: far above that of noisy images, below that of labels


class HeldIntegers:
    """The values of integer images, seen one image after the other.

    Parameters
    ----------
    dtype : numpy.dtype
        Their type.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype.newbyteorder("=")
        self.lowest, self.highest = 0, 0
        self._values: set[int] = set()
        self._n_flat, self._n_pairs = 0, 0

    @property
    def is_settled(self) -> bool:
        """Whether further images cannot change what the integers stand for."""
        if self.dtype in SCALES:
            return self.highest > SCALES[self.dtype] / 2
        return len(self._values) > _MOST_LABELS

    def add(self, image: NDArray[Any]) -> None:
        """Look at an image."""
        if image.dtype.kind == "f":  # integers with missing voxels among them
            image = image[~np.isnan(image)].astype(np.int64)
        if not image.size:
            return
        self.lowest = min(self.lowest, int(image.min()))
        self.highest = max(self.highest, int(image.max()))
        if len(self._values) <= _MOST_LABELS:
            self._values.update(np.unique(image).tolist())
        flat, pairs = count_flat_pairs(image)
        self._n_flat, self._n_pairs = self._n_flat + flat, self._n_pairs + pairs

    @property
    def are_masks(self) -> bool:
        """Whether there are no values but 0 and 1."""
        return self.lowest >= 0 and self.highest <= 1

    @property
    def look_like_labels(self) -> bool:
        """Whether the values are few, or mostly equal to their neighbours, and far from full."""
        if self.are_masks or self.lowest < 0 or len(self._values) > _MOST_LABELS:
            return False
        if self.dtype in SCALES and self.highest > SCALES[self.dtype] / 2:
            return False
        is_flat = self._n_flat > _FLAT * max(self._n_pairs, 1)
        return len(self._values) <= FEW or is_flat

    def unit(self, name: str, *, as_they_are: bool, for_model: bool = False) -> float:
        """Return the value that stands for 1, or raise an ImageError that asks for it.

        Parameters
        ----------
        name : str
            An image to name in the error.
        as_they_are : bool
            Whether integers of a type without a known range are intensities, as in NIfTI files.
        for_model : bool
            Whether a fitted model has rules for them, which nobody can change; by default not.
        """
        if self.are_masks:
            return 1.0
        if self.look_like_labels:
            raise ImageError(
                f"{name} holds {self._describe_values()}, which look like labels"
                f"{_NOT_FOR_LABELS if for_model else _HOW_TO_READ_LABELS}"
            )
        if self.dtype == np.uint8:
            return SCALES[self.dtype]
        if self.dtype == np.uint16:
            return next(2.0**bits - 1 for bits in _BITS if self.highest < 2**bits)
        if as_they_are:
            return 1.0
        raise ImageError(
            f"{name} holds {self.dtype} from {self.lowest} to {self.highest}, and images must be "
            "float, bool, uint8 or uint16: the range of other types says nothing about the values. "
            f"{_CONVERT if for_model else _HOW_TO_READ}"
        )

    def _describe_values(self) -> str:
        values = sorted(self._values)
        if len(values) > FEW:
            return f"{len(values)} different integers up to {self.highest}"
        return f"only the integers {', '.join(map(str, values))}"


def read_unit(
    images: Iterable[NDArray[Any]],
    dtype: np.dtype[Any],
    name: str,
    *,
    as_they_are: bool,
    for_model: bool = False,
) -> float:
    """Return the value that stands for 1 in integer images, reading as few as it takes.

    Parameters
    ----------
    images : iterable of arrays
        Integers, or floats that were integers, with NaN.
    dtype : numpy.dtype
        The type of the integers.
    name, as_they_are, for_model
        As for `HeldIntegers.unit`.
    """
    if dtype.kind == "b":
        return 1.0
    held = HeldIntegers(dtype)
    for image in images:
        held.add(image)
        if held.is_settled:
            break
    return held.unit(name, as_they_are=as_they_are, for_model=for_model)


def count_flat_pairs(image: NDArray[Any]) -> tuple[int, int]:
    """Return how many neighbours along the last axis are equal, and how many there are.

    Pairs of zeros do not count: a background is flat in any image.
    """
    before, after = image[..., :-1], image[..., 1:]
    if image.ndim < 2 or not before.size:
        return 0, 0
    counted = (before != 0) | (after != 0)
    return int(np.count_nonzero((before == after) & counted)), int(np.count_nonzero(counted))
