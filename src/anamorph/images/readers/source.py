"""Image files whose header has been read, and protection against damaged ones.

Sizes have limits, libraries are silenced, and errors have one line.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError, short_reason
from anamorph.images.grid import Grid, format_shape

Exceptions = tuple[type[Exception], ...]

MOST_VOXELS = 2**29
_MOST_COMPRESSED = 2000  # gzip, PNG and JPEG shrink a blank image some 1000 times, never more
_DAMAGE: Exceptions = (OSError, ValueError, EOFError, SyntaxError, ArithmeticError, zlib.error)
_TALKATIVE = ("nibabel.global", "PIL.TiffImagePlugin")
_one_at_a_time = threading.RLock()  # filters of warnings belong to the process, not to a thread


@dataclass(frozen=True)
class Source:
    """An image file before its voxels are read.

    Attributes
    ----------
    path : Path
    grid : Grid
    n_channels : int or None
        None if there is no channel axis.
    integers : numpy.dtype or None
        Type of the integers that the file holds; None if it holds floats, or integers that its
        header turns into floats.
    is_slow : bool
        Whether decoding takes longer than reading, as for compressed files.
    stamp : pair of int
        Size and time of the last change of the file when it was opened.
    decode : callable
        Returns the voxels, (*space) or (*space, n_channels), NaN where missing.
    as_they_are : bool
        Whether integers of a type that says nothing about their range are intensities, as in
        volumes; by default they are. If not, somebody must say what they stand for.
    place_is_guess : bool
        Whether the header does not say where voxels are; it does by default.
    units : str
        Unit of lengths in the header, "mm" by default; "unknown" if it does not say.
    """

    path: Path
    grid: Grid
    n_channels: int | None
    integers: np.dtype[Any] | None
    is_slow: bool
    stamp: tuple[int, int]
    decode: Callable[[], NDArray[Any]]
    as_they_are: bool = True
    place_is_guess: bool = False
    units: str = "mm"

    def load(self) -> NDArray[Any]:
        """Return the voxels, (C, *space), as float32 or the integers of the file, not scaled."""
        if read_stamp(self.path) != self.stamp:
            raise ImageError(f"{self.path} has changed since it was first read: start again")
        voxels = self.decode()
        channels = () if self.n_channels is None else (self.n_channels,)
        expected = (*self.grid.space, *channels)
        if voxels.shape != expected:
            raise ImageError(
                f"{self.path} is damaged: its header says {format_shape(expected)}, and it holds "
                f"{format_shape(voxels.shape)}: make it again, or leave it out"
            )
        if voxels.dtype.kind == "f":
            with np.errstate(over="ignore"):  # infinity is rejected when values are checked
                voxels = voxels.astype(np.float32)
        return voxels[None] if self.n_channels is None else np.moveaxis(voxels, -1, 0)


def integer_type(path: Path, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return a type in native byte order if it is one of integers, None if it is one of floats.

    Raises
    ------
    ImageError
        If the type does not hold real numbers.
    """
    if dtype.kind not in "biuf":
        raise ImageError(f"{path} holds {dtype}, not real numbers: convert it, e.g. to float32")
    return None if dtype.kind == "f" else dtype.newbyteorder("=")


def read_stamp(path: Path) -> tuple[int, int]:
    """Return the size of a file in bytes and the time of its last change in nanoseconds.

    Raises
    ------
    ImageError
        If the file does not exist, is empty, or is not a plain file.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ImageError(f"{path} does not exist: check its name, or leave it out") from None
    except PermissionError:
        raise ImageError(f"{path} may not be read: check its permissions") from None
    except (OSError, ValueError) as error:
        raise ImageError(f"{path} cannot be read ({short_reason(error)}): check its name") from None
    if stat.S_ISDIR(status.st_mode):
        raise ImageError(f"{path} is a folder, not an image: give the files in it")
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"{path} is not a plain file: copy the image to one")
    if status.st_size == 0:
        raise ImageError(f"{path} is empty (0 bytes): make it again, or leave it out")
    return status.st_size, status.st_mtime_ns


@contextmanager
def reading(path: Path, kind: str, damage: Exceptions) -> Iterator[None]:
    """Turn every exception that a damaged file can raise into an ImageError.

    Parameters
    ----------
    path : Path
    kind : str
        What the file should be, e.g. "a NIfTI file".
    damage : tuple of exception types
        Those that the decoding library raises for damaged files, besides common ones.
    """
    try:
        yield
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError(f"{path} does not exist any more: put it back, or leave it out") from None
    except PermissionError:
        raise ImageError(f"{path} may not be read: check its permissions") from None
    except MemoryError:
        raise ImageError(f"{path} needs more memory than there is to be read: crop it") from None
    except _DAMAGE + damage as error:
        raise ImageError(
            f"{path} cannot be read as {kind}, it is damaged or something else "
            f"({short_reason(error)}): make it again, or leave it out"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and log messages of the decoding libraries; one thread at a time."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    with _one_at_a_time, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        before = [logger.disabled for logger in loggers]
        try:
            for logger in loggers:
                logger.disabled = True
            yield
        finally:
            for logger, was_disabled in zip(loggers, before, strict=True):
                logger.disabled = was_disabled


def check_size(
    path: Path, shape: tuple[int, ...], n_bytes: int, n_stored: int, *, is_compressed: bool
) -> None:
    """Raise an ImageError if a header promises more voxels than its file can hold.

    Parameters
    ----------
    path : Path
    shape : tuple of int
        Shape of the image according to its header.
    n_bytes : int
        Bytes up to the end of the image, uncompressed.
    n_stored : int
        Size in bytes of the file, or of the part of it that holds the image.
    is_compressed : bool
    """
    if min(shape, default=0) < 1:
        raise ImageError(f"{path} holds an image of shape {format_shape(shape)}, which is empty")
    if math.prod(shape) > MOST_VOXELS:
        raise ImageError(
            f"{path} holds {format_shape(shape)} voxels, more than {MOST_VOXELS:,}, or its header "
            "is damaged: crop it or reduce its resolution"
        )
    if n_bytes > n_stored * (_MOST_COMPRESSED if is_compressed else 1):
        raise ImageError(
            f"{path} is truncated or damaged: an image of {format_shape(shape)} needs {n_bytes:,} "
            f"bytes, and the file has {n_stored:,}: make it again, or leave it out"
        )
