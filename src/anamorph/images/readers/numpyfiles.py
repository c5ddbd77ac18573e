"""One array in a .npy file, or alone in a .npz file. Nothing is ever unpickled."""

from __future__ import annotations

import math
import tokenize
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid, format_shape
from anamorph.images.readers.source import (
    Source,
    check_size,
    integer_type,
    quiet,
    read_stamp,
    reading,
)
from anamorph.images.rules import looks_coloured

SUFFIXES = (".npy", ".npz")

_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# RuntimeError: an encrypted member, or compressed by a method that zipfile does not know.
_DAMAGE = (tokenize.TokenError, zipfile.BadZipFile, RuntimeError)
_reading = partial(reading, kind="an array", damage=_DAMAGE)


def open_array(path: Path, channel_axis: int | None, *, as_labels: bool) -> Source:
    """Open a file with one array.

    Parameters
    ----------
    path : Path
    channel_axis : int or None
        Axis of the stack of images that holds channels.
    as_labels : bool
        Whether integers are labels, and do not stand for values from 0 to 1.

    Returns
    -------
    Source
    """
    stamp = read_stamp(path)
    is_compressed = path.suffix.lower() == ".npz"
    with _reading(path), quiet(), _opened(path) as (stream, n_stored):
        shape, dtype = _read_header(path, stream)
        n_bytes = stream.tell() + math.prod(shape) * dtype.itemsize
    integers = integer_type(path, dtype)
    check_size(path, shape, n_bytes, n_stored, is_compressed=is_compressed)
    axis = _axis_of_channels(path, shape, channel_axis)
    space = tuple(length for n, length in enumerate(shape) if n != axis)
    if len(space) not in (2, 3):
        raise ImageError(
            f"{path} is {format_shape(shape)}, and an image has 2 or 3 axes: give one image per "
            "file, and fit with channel_axis=-1 (--channel-axis -1) if its last axis holds channels"
        )
    if axis is None and not as_labels and looks_coloured(shape, dtype):
        raise ImageError(
            f"{path} is {format_shape(shape)} of uint8: fit with channel_axis=-1 (--channel-axis "
            "-1) if its last axis holds colours, or save it as floats if that is a third axis in "
            "space"
        )
    return Source(
        path=path,
        grid=Grid(space),
        n_channels=None if axis is None else shape[axis],
        integers=integers,
        is_slow=is_compressed,
        stamp=stamp,
        decode=partial(_decode, path, axis),
        as_they_are=as_labels,
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Yield a stream of the one array in a file, and the number of bytes that store it."""
    with open(path, "rb") as file:
        if path.suffix.lower() == ".npy":
            yield file, path.stat().st_size
            return
        with zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(members) != 1:
                names = ", ".join(name.removesuffix(".npy") for name in members) or "none"
                raise ImageError(
                    f"{path} must hold one array, got {len(members)} ({names[:80]}): save one "
                    "image per file"
                )
            with archive.open(members[0]) as stream:
                yield stream, min(archive.getinfo(members[0]).compress_size, path.stat().st_size)


def _read_header(path: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version not in _HEADER_READERS:
        raise ImageError(f"{path} has version {version} of the .npy format: save it again")
    shape, _, dtype = _HEADER_READERS[version](stream)
    return shape, dtype


def _axis_of_channels(path: Path, shape: tuple[int, ...], channel_axis: int | None) -> int | None:
    if channel_axis is None:
        return None
    n_axes = len(shape) + 1
    if not -n_axes <= channel_axis < n_axes or channel_axis % n_axes == 0:
        raise ImageError(
            f"channel_axis must be an axis of the stack of images, not 0, got {channel_axis} for "
            f"{path} of {format_shape(shape)}"
        )
    return channel_axis % n_axes - 1


def _decode(path: Path, axis: int | None) -> NDArray[Any]:
    with _reading(path), quiet(), _opened(path) as (stream, _):
        voxels: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    return voxels if axis is None else np.moveaxis(voxels, axis, -1)
