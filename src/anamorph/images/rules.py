"""Rules for reading numbers that arrays and files share: scaling, classes, colours, missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.format import BY_CONTENT, ImageFormat
from anamorph.images.integers import SCALES
from anamorph.images.intensity import EQUALISING
from anamorph.images.labels import check_known, find_labels
from anamorph.likelihoods import Likelihood

_COLOURS = (3, 4)  # channels of a picture


def missing_value_of(given: float | None, like: ImageFormat | None) -> float | None:
    """Return the value that stands for missing: as given, else that of a model, else None."""
    return like.missing_value if given is None and like is not None else given


def check_scaling(likelihood: Likelihood, scale: str | float | None, *, has_labels: bool) -> None:
    """Raise an ImageError if images cannot be scaled as somebody asked for.

    Parameters
    ----------
    likelihood : Likelihood
    scale : str or float, optional
    has_labels : bool
        Whether images are label maps.
    """
    changes = scale not in (None, "none")
    if has_labels and changes:
        raise ImageError(f"label maps are not scaled: leave scale={scale!r} out")
    if likelihood.holds_classes and changes:
        raise ImageError(f"probabilities of classes are not scaled: leave scale={scale!r} out")
    if isinstance(scale, str) and changes and not is_unbounded(likelihood):
        raise ImageError(
            f"scale={scale!r} is for likelihood='gaussian', and {likelihood.name} images must have "
            f"{likelihood.range_words}: divide by a number instead, e.g. scale=255"
        )


def is_unbounded(likelihood: Likelihood) -> bool:
    """Tell whether images may have any intensities."""
    return not np.isfinite(likelihood.value_range).any()


def compares_intensities(likelihood: Likelihood, scale: str | float | None) -> bool:
    """Tell whether images should be about equally bright, each not being scaled by itself."""
    return is_unbounded(likelihood) and scale not in EQUALISING


def divisor_of(dtype: np.dtype[Any], unit: float | str) -> float:
    """Return what values of a type are divided by, given the integer that stands for 1."""
    if dtype.kind not in "iu" or unit == BY_CONTENT:
        return 1.0
    return SCALES.get(dtype.newbyteorder("="), 1.0) if isinstance(unit, str) else unit


def found_classes(
    maps: Iterator[NDArray[np.int32]],
    name: Callable[[int], str],
    n_classes: int | None,
    like: ImageFormat | None,
) -> tuple[int, tuple[int, ...] | None]:
    """Return the number of classes of label maps, and their labels unless these are 0, 1, 2, ...

    Parameters
    ----------
    maps : iterator of arrays
        Labels of each image.
    name : callable
        Returns what to call an image, given its number.
    n_classes : int, optional
        As somebody asked for.
    like : ImageFormat, optional
        That of a model, whose labels are the only ones known.
    """
    known = None if n_classes is None else tuple(range(n_classes))
    known = known if like is None else like.class_labels
    if known is None:
        known = find_labels(maps, name)
    else:
        for n, labels in enumerate(maps):
            check_known(labels, known, name(n))
    return len(known), None if known == tuple(range(len(known))) else known


def looks_coloured(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Tell whether the last axis of an image is likely to hold colours, and not space."""
    return len(shape) == 3 and shape[-1] in _COLOURS and dtype == np.uint8 and min(shape[:2]) > 4
