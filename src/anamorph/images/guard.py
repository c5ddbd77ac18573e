"""Protection against damaged files: size limits, silenced libraries, one-line errors."""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from anamorph.images.errors import ImageError

MOST_VOXELS = 2**29
_MOST_COMPRESSED = 2000  # gzip, PNG and JPEG shrink a blank image some 1000 times, never more
_LONGEST_REASON = 120
_TALKATIVE = ("nibabel.global", "PIL.TiffImagePlugin")
_one_at_a_time = threading.RLock()  # filters of warnings belong to the process, not to a thread


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
def reading(path: Path, kind: str, damage: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn every exception that a damaged file can raise into an ImageError.

    Parameters
    ----------
    path : Path
    kind : str
        What the file should be, e.g. "a NIfTI file".
    damage : tuple of exception types
        Those that the decoding library raises for damaged files.
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
    except damage as error:
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


def short_reason(error: BaseException) -> str:
    """Return the text of an exception as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape in words, e.g. "64 x 48"."""
    return " x ".join(map(str, shape)) or "a single number"
