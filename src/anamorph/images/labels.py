"""Label maps: integers in arrays and files, one channel per class in a model.

Labels may be any whole numbers from 0: a table of those that occur says which channel is whose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.likelihoods import DEFAULT

MISSING = -1
MOST_CLASSES = 256
_HIGHEST = 2**31 - 1
_MOST_SHOWN = 12
_NO_LABELS = (
    ": give channel_axis=-1 (--channel-axis -1) if the last axis holds probabilities of classes, "
    f"or likelihood={DEFAULT!r} if these are intensities"
)
_FOR_LABELS = ", and the model was fitted to label maps: give those that were drawn on these images"


def as_labels(name: object, voxels: NDArray[Any], *, for_model: bool = False) -> NDArray[np.int32]:
    """Return integers of any type as labels, MISSING for NaN.

    Parameters
    ----------
    name : object
        What to call the image in an error message, e.g. its path.
    voxels : array
    for_model : bool
        Whether a fitted model has labels, so that these must be; by default not.
    """
    missing: Any = np.False_
    if voxels.dtype.kind == "f":
        missing = np.isnan(voxels)
        voxels = np.where(missing, 0, voxels)
        if (voxels != np.rint(voxels)).any():
            raise ImageError(
                f"{name} holds fractions, not labels 0, 1, 2, ..."
                f"{_FOR_LABELS if for_model else _NO_LABELS}"
            )
    lowest, highest = voxels.min(), voxels.max()
    if lowest < 0 or highest > _HIGHEST:
        raise ImageError(
            f"{name} holds {lowest:.6g} to {highest:.6g}, and labels are whole numbers from 0 "
            f"to {_HIGHEST}: is it a label map?"
        )
    return np.where(missing, np.int32(MISSING), voxels.astype(np.int32))


def find_labels(maps: Iterable[NDArray[np.int32]], name: Callable[[int], str]) -> tuple[int, ...]:
    """Return the labels that occur in a collection, sorted; at least two.

    Parameters
    ----------
    maps : iterable of arrays
        Labels of each image, MISSING where there is none.
    name : callable
        Returns what to call an image, given its number.
    """
    found: set[int] = set()
    for n, labels in enumerate(maps):
        found.update(occurring(labels))
        if len(found) > MOST_CLASSES:
            raise ImageError(
                f"{name(n)} and those before it hold more than {MOST_CLASSES} different labels: "
                "are these label maps?"
            )
    if len(found) < 2:  # one class alone would be no model of classes
        found |= {0, 1} if found <= {0, 1} else {0}
    return tuple(sorted(found))


def check_known(labels: NDArray[np.int32], known: tuple[int, ...], name: str) -> None:
    """Raise an ImageError if an image has a label that a model does not know."""
    unknown = sorted(set(occurring(labels)) - set(known))
    if unknown:
        raise ImageError(
            f"{name} has label {unknown[-1]}, and the model knows {format_labels(known)}: "
            "renumber the labels, or fit a model to images that have it"
        )


def occurring(labels: NDArray[np.integer]) -> list[int]:
    """Return the labels in an image, sorted; none of them is MISSING."""
    flat = labels.ravel()
    if flat.size and flat.max() < 2**16:  # counting is far quicker than sorting
        values = np.flatnonzero(np.bincount(flat + np.int32(1), minlength=1)[1:])
    else:
        values = np.unique(flat[flat != MISSING])
    return [int(value) for value in values]


def format_labels(labels: tuple[int, ...]) -> str:
    """Return labels in words, e.g. "0, 2, 7"; many of them shortened."""
    if labels == tuple(range(len(labels))) and len(labels) > 3:
        return f"0 to {labels[-1]}"
    shown = ", ".join(map(str, labels[:_MOST_SHOWN]))
    return shown if len(labels) <= _MOST_SHOWN else f"{shown}, ..., {labels[-1]}"


def one_hot(labels: NDArray[Any], classes: tuple[int, ...]) -> NDArray[np.float32]:
    """Return labels (n, *space) as channels (n, class, *space), NaN where missing.

    Parameters
    ----------
    labels : array of shape (n, *space)
    classes : tuple of int
        The label of every class.
    """
    table = np.array(classes, np.int32).reshape(-1, *(1,) * (labels.ndim - 1))
    channels = np.asarray(labels[:, None] == table, np.float32)
    np.moveaxis(channels, 1, -1)[labels == MISSING] = np.nan
    return channels
