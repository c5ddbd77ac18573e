"""Whatever people have as images: arrays, lists of arrays, lists of files, opened or not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from numpy.typing import ArrayLike

from anamorph.images.arrays import ArrayImages
from anamorph.images.files import FileImages
from anamorph.images.hidden import HiddenImages

ImageCollection = ArrayImages | FileImages | HiddenImages
#: What people may give as images.
Images = ArrayLike | Sequence[Any] | ImageCollection


def is_list_of_files(images: object) -> bool:
    """Tell whether images are given as paths, or as tuples of paths (tissue maps)."""
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
    """Return images that can be checked, and read a few at a time.

    Parameters
    ----------
    images : array, list of arrays, list of paths, or a collection that was opened before
    likelihood : str
    channel_axis : int, optional
    n_classes : int, optional
        Of label maps; by default one more than the largest label.
    """
    if isinstance(images, ImageCollection):
        return images
    if is_list_of_files(images):
        return FileImages(cast(Sequence[Any], images), likelihood, channel_axis, n_classes)
    return ArrayImages(images, likelihood, channel_axis, n_classes)
