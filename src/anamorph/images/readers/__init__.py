"""Readers of image files: volumes, pictures and arrays. The suffix of a file chooses its reader.

Names of files also name the images, and tell which tissue maps belong together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from anamorph.images.errors import ImageError
from anamorph.images.readers import nifti, numpyfiles, pictures, volumes
from anamorph.images.readers.source import Source, read_stamp

SUFFIXES = (*nifti.SUFFIXES, *volumes.SUFFIXES, *pictures.SUFFIXES, *numpyfiles.SUFFIXES)


def open_image(path: Path, channel_axis: int | None, *, as_labels: bool) -> Source:
    """Open an image file of any kind, or raise an ImageError that says what is wrong with it.

    Parameters
    ----------
    path : Path
    channel_axis : int or None
        Axis of the stack of images that holds channels or classes. Ignored for pictures, whose
        files say whether they are in colour; NIfTI files always have channels last.
    as_labels : bool
        Whether the image is a label map.

    Returns
    -------
    Source
    """
    suffix = suffix_of(path)
    if suffix in nifti.SUFFIXES:
        return nifti.open_nifti(path, has_channels=channel_axis is not None)
    if suffix in volumes.SUFFIXES:
        return volumes.open_volume(path, has_channels=channel_axis is not None)
    if suffix in pictures.SUFFIXES:
        return pictures.open_picture(path, as_labels=as_labels)
    if suffix in numpyfiles.SUFFIXES:
        return numpyfiles.open_array(path, channel_axis, as_labels=as_labels)
    read_stamp(path)  # a missing file has another error
    raise ImageError(f"{path} must be one of {', '.join(SUFFIXES)}: convert it, or leave it out")


def suffix_of(path: Path) -> str:
    """Return the suffix of an image file in lower case, e.g. ".nii.gz"; "" if it is no image."""
    name = path.name.lower()
    return max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len, default="")


def stem_of(path: Path) -> str:
    """Return the name of an image file without its suffix."""
    return path.name[: len(path.name) - len(suffix_of(path))]


def identities_of(paths: Sequence[Path]) -> list[str]:
    """Return a different name for every file: its stem, with folders where stems repeat."""
    stems = [stem_of(path) for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    absolute = [Path(os.path.abspath(path)) for path in paths]
    common = os.path.commonpath([path.parent for path in absolute])
    names: dict[str, Path] = {}
    for path in absolute:
        name = str(path.relative_to(common).with_name(stem_of(path)))
        if name in names:
            raise ImageError(f"{names[name]} and {path} are one image: leave one of them out")
        names[name] = path
    return list(names)


def match_tissues(*classes: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, ...]]:
    """Return the tissue maps of every image, matching the files of all classes in order.

    Parameters
    ----------
    *classes : lists of paths
        The files of one class, in the same order for every class.

    Returns
    -------
    list of tuples of Path
        For `FileImages`.

    Examples
    --------
    >>> match_tissues(["rc1a.nii", "rc1b.nii"], ["rc2a.nii", "rc2b.nii"])[0]
    (PosixPath('rc1a.nii'), PosixPath('rc2a.nii'))
    """
    counts = [len(files) for files in classes]
    if not counts or min(counts) == 0:
        raise ImageError("no tissue maps: a list of files is empty")
    if len(set(counts)) > 1:
        raise ImageError(
            f"every class needs one tissue map per image, got {', '.join(map(str, counts))} files"
        )
    subjects = [_without_common_parts([os.fspath(file) for file in files]) for files in classes]
    images = list(zip(*([Path(file) for file in files] for files in classes), strict=True))
    for image, names in zip(images, zip(*subjects, strict=True), strict=True):
        if len(set(names)) > 1:
            raise ImageError(
                f"{image[0]} and {image[1]} do not look like maps of one image: is a file missing?"
            )
    return images


def _without_common_parts(names: list[str]) -> list[str]:
    """Return names without their common beginning and their common end."""
    start = len(common_beginning(names))
    rests = [name[start:] for name in names]
    end = len(common_beginning([rest[::-1] for rest in rests]))
    return [rest[: len(rest) - end] for rest in rests]


def common_beginning(names: Sequence[str]) -> str:
    """Return the characters that all names begin with."""
    columns = takewhile(lambda characters: len(set(characters)) == 1, zip(*names, strict=False))
    return "".join(column[0] for column in columns)
