"""Images in any form that people have: arrays, lists of arrays or files, collections."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from numpy.typing import ArrayLike

from anamorph.images.arrays import ArrayImages
from anamorph.images.files import FileImages
from anamorph.images.format import ImageFormat
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
    *,
    scale: str | float | None = None,
    like: ImageFormat | None = None,
    pad: int | str = 0,
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
        Number of classes of label maps 0, 1, 2, ...; by default there is one for each label.
    scale : {"none", "robust", "zscore", "match"} or float, optional
        How to scale intensities; by default floats stay, and integers are divided by what stands
        for 1 among them.
    like : ImageFormat, optional
        Format of the images that a model was fitted to, by whose rules these are read; by default
        rules are found from the images.
    pad : int or "auto"
        Margin of files, as `FileImages` has it; 0 by default.

    Returns
    -------
    ArrayImages, FileImages or HiddenImages
    """
    if isinstance(images, ImageCollection):
        return images
    if is_list_of_files(images):
        files = cast(Sequence[Any], images)
        return FileImages(
            files, likelihood, channel_axis, n_classes, scale=scale, like=like, pad=pad
        )
    return ArrayImages(images, likelihood, channel_axis, n_classes, scale=scale, like=like)
