"""Names of image files: names of images, and which tissue maps belong together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from anamorph.images.errors import ImageError
from anamorph.images.readers import stem_of


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
