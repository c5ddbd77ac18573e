"""Images in any form that people have: arrays, lists of arrays or files, collections."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from numpy.typing import ArrayLike

from anamorph.images.arrays import ArrayImages
from anamorph.images.files import FileImages
from anamorph.images.hidden import HiddenImages

ImageCollection = ArrayImages | FileImages | HiddenImages
#: All forms of images that functions accept.
Images = ArrayLike | Sequence[Any] | ImageCollection


def is_list_of_files(images: object) -> bool:
    """Return whether images are given as paths, or as tuples of paths (tissue maps)."""
    if not isinstance(images, list | tuple) or not images:
        return False
    first = images[0]
    if isinstance(first, list | tuple) and first:
        first = first[0]
    return isinstance(first, str | os.PathLike)


def open_images(
    images: Images,
    likelihood: str,
    channel_axis: int | None = None,
    n_classes: int | None = None,
) -> ImageCollection:
    """Return a collection of images, which are checked and read a few at a time.

    Parameters
    ----------
    images : array, list of arrays, list of paths, or collection
        A collection is returned unchanged.
    likelihood : str
        Name of the likelihood that will explain them, e.g. "gaussian".
    channel_axis : int, optional
        Axis of the stacked images that holds channels or classes; by default there is none.
    n_classes : int, optional
        Number of classes of label maps; by default one more than the largest label.

    Returns
    -------
    ArrayImages, FileImages or HiddenImages
    """
    if isinstance(images, ImageCollection):
        return images
    if is_list_of_files(images):
        return FileImages(cast(Sequence[Any], images), likelihood, channel_axis, n_classes)
    return ArrayImages(images, likelihood, channel_axis, n_classes)
