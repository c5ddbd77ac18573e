"""Readers of image files: NIfTI, pictures and arrays. The suffix of a file chooses its reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anamorph.images.errors import ImageError
from anamorph.images.guard import read_stamp
from anamorph.images.readers import nifti, numpyfiles, pictures
from anamorph.images.readers.source import Source

SUFFIXES = (*nifti.SUFFIXES, *pictures.SUFFIXES, *numpyfiles.SUFFIXES)


def open_image(
    path: Path, channel_axis: int | None, *, as_labels: bool, is_scaled: bool = True
) -> Source:
    """Open an image file of any kind, or raise an ImageError that says what is wrong with it.

    Parameters
    ----------
    path : Path
    channel_axis : int or None
        Axis of the stack of images that holds channels or classes. Ignored for pictures, whose
        files say whether they are in colour; NIfTI files always have channels last.
    as_labels : bool
        Whether the image is a label map.
    is_scaled : bool
        Whether integers stand for values from 0 to 1, by default. If not, they stay as they are.

    Returns
    -------
    Source
    """
    suffix = suffix_of(path)
    if suffix in nifti.SUFFIXES:
        source = nifti.open_nifti(path, has_channels=channel_axis is not None)
    elif suffix in pictures.SUFFIXES:
        source = pictures.open_picture(path, as_labels=as_labels, is_scaled=is_scaled)
    elif suffix in numpyfiles.SUFFIXES:
        source = numpyfiles.open_array(path, channel_axis, is_scaled=is_scaled and not as_labels)
    else:
        read_stamp(path)  # a missing file has another error
        raise ImageError(
            f"{path} must be one of {', '.join(SUFFIXES)}: convert it, or leave it out"
        )
    return source if is_scaled else replace(source, scale=None)


def suffix_of(path: Path) -> str:
    """Return the suffix of an image file in lower case, e.g. ".nii.gz"; "" if it is no image."""
    name = path.name.lower()
    return max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len, default="")


def stem_of(path: Path) -> str:
    """Return the name of an image file without its suffix."""
    return path.name[: len(path.name) - len(suffix_of(path))]
