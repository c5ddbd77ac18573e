"""PNG, JPEG and TIFF files, read by Pillow: grey, colour or indexed; transparent is missing."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid
from anamorph.images.readers.source import Source, check_size, quiet, read_stamp, reading

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")

_FORMATS = ("PNG", "JPEG", "TIFF")
_DAMAGE = (Image.DecompressionBombError, TypeError, LookupError, struct.error)
_reading = partial(reading, kind="a picture", damage=_DAMAGE)
_TYPES = {"1": bool, "I": np.int32, "F": None, "I;16": np.uint16}  # others have 8 bits
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 0x0112  # EXIF; 5 and above swap rows and columns
_OPAQUE = 128


def open_picture(path: Path, *, as_labels: bool) -> Source:
    """Open a picture, whose pixels are (rows, columns) or (rows, columns, 3).

    Parameters
    ----------
    path : Path
    as_labels : bool
        Whether the values of an indexed picture are its indices, not its colours.

    Returns
    -------
    Source
    """
    stamp = read_stamp(path)
    with _reading(path), quiet(), Image.open(path, formats=_FORMATS) as image:
        mode = _pixel_mode(image, as_labels)
        space = (image.height, image.width)
        if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
            raise ImageError(f"{path} has several pages: give one picture per file")
        if _is_photo(image) and image.getexif().get(_ORIENTATION, 1) >= 5:
            space = space[::-1]
    if as_labels and mode.startswith("RGB"):
        raise ImageError(f"{path} is in colour: label maps must be grey or indexed pictures")
    n_channels = 3 if mode.startswith("RGB") else None
    check_size(path, space, space[0] * space[1] * (n_channels or 1), stamp[0], is_compressed=True)
    return Source(
        path=path,
        grid=Grid(space),
        n_channels=n_channels,
        integers=None if mode == "F" else np.dtype(_TYPES.get(mode, np.uint8)),
        is_slow=True,
        stamp=stamp,
        decode=partial(_decode, path, as_labels),
        as_they_are=as_labels,
    )


@contextmanager
def _standard_error_closed() -> Iterator[None]:
    """Hide what libtiff, a C library, prints about damaged files."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _is_photo(image: Image.Image) -> bool:
    return image.format in ("JPEG", "MPO")


def _pixel_mode(image: Image.Image, as_labels: bool) -> str:
    """Return the Pillow mode in which to read the pixels."""
    if image.mode.startswith("I;16"):
        return "I;16"
    if image.mode in _TYPES or (as_labels and image.mode == "P"):
        return image.mode
    has_alpha = image.mode in _WITH_ALPHA or "transparency" in image.info
    if image.mode in ("L", "LA", "La"):
        return "LA" if has_alpha else "L"
    return "RGBA" if has_alpha else "RGB"


def _decode(path: Path, as_labels: bool) -> NDArray[Any]:
    with _reading(path), quiet(), Image.open(path, formats=_FORMATS) as image:
        mode = _pixel_mode(image, as_labels)
        if image.format == "TIFF":
            with _standard_error_closed():
                image.load()
        upright = ImageOps.exif_transpose(image) if _is_photo(image) else image
        is_as_wanted = upright.mode.startswith(mode)  # I;16 has an order of bytes
        pixels = np.array(upright if is_as_wanted else upright.convert(mode))
    if mode in _WITH_ALPHA:
        colours = pixels[..., :-1].astype(np.float32)
        colours[pixels[..., -1] < _OPAQUE] = np.nan
        return colours if mode == "RGBA" else colours[..., 0]
    return pixels
