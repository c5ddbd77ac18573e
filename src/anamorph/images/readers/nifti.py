"""NIfTI-1 and NIfTI-2 files, compressed or not, read by nibabel."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gzip
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.nifti1 import Nifti1Header
from nibabel.nifti2 import Nifti2Header
from nibabel.spatialimages import HeaderDataError
from nibabel.wrapstruct import WrapStructError
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.grid import Affine, Grid, format_shape
from anamorph.images.readers.source import (
    Source,
    check_size,
    integer_type,
    quiet,
    read_stamp,
    reading,
)

SUFFIXES = (".nii", ".nii.gz")

_reading = partial(reading, kind="a NIfTI file", damage=(HeaderDataError, WrapStructError))
_HEADERS = {348: Nifti1Header, 540: Nifti2Header}  # by their size, which is what they begin with
_UNITS = {1: "m", 2: "mm", 3: "micron"}
_GZIP_MAGIC = b"\x1f\x8b"
_FARTHEST = 1e9  # mm
_LEAST_VOLUME = 1e-6  # of the unit cell, relative to that of a box with the same edges


def open_nifti(path: Path, *, has_channels: bool) -> Source:
    """Open a NIfTI file.

    Parameters
    ----------
    path : Path
    has_channels : bool
        Whether the last axis holds channels. Other trailing axes must have length 1.

    Returns
    -------
    Source
    """
    stamp = read_stamp(path)
    is_compressed = _is_compressed(path)
    with _reading(path), quiet():
        header = _read_header(path)
        proxy = ArrayProxy(os.fspath(path), header, mmap=False)
        affine = np.array(header.get_best_affine(), np.float64)
    shape = tuple(int(length) for length in proxy.shape)
    n_bytes = int(proxy.offset) + math.prod(shape) * proxy.dtype.itemsize
    check_size(path, shape, n_bytes, stamp[0], is_compressed=is_compressed)
    integers = integer_type(path, proxy.dtype)
    check_affine(path, affine)
    space, channels = split_shape(path, shape, has_channels)
    is_raw = (proxy.slope, proxy.inter) == (1, 0)
    return Source(
        path=path,
        grid=Grid(space, affine),
        n_channels=channels[0] if channels else None,
        integers=integers if is_raw else None,
        is_slow=is_compressed,
        stamp=stamp,
        decode=partial(_decode, path, (*space, *channels)),
        place_is_guess=not (header["sform_code"] or header["qform_code"]),
        units=_UNITS.get(int(header["xyzt_units"]) % 8, "unknown"),
    )


def _is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _read_header(path: Path) -> Nifti1Header:
    """Return the header without its extensions, which may have any length."""
    with gzip.open(path) if _is_compressed(path) else path.open("rb") as stream:
        raw = stream.read(max(_HEADERS))
    if raw.startswith(_GZIP_MAGIC):
        raise ImageError(f"{path} is compressed: rename it to {path.name}.gz")
    for size, header_type in _HEADERS.items():
        if size in (int.from_bytes(raw[:4], "little"), int.from_bytes(raw[:4], "big")):
            return header_type(raw[:size])
    raise ImageError(f"{path} is not a NIfTI file, whatever its name says: convert it")


def _decode(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    with _reading(path):
        with quiet():
            proxy = ArrayProxy(os.fspath(path), _read_header(path), mmap=False)
        with np.errstate(all="ignore"):
            return np.asanyarray(proxy).reshape(shape)


def split_shape(
    path: Path, shape: tuple[int, ...], has_channels: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of the grid, and the length of the channel axis if there is one.

    Parameters
    ----------
    path : Path
    shape : tuple of int
        Shape of all that a file holds.
    has_channels : bool
        Whether the last axis holds channels. Other trailing axes must have length 1.
    """
    channels = shape[-1:] if has_channels and len(shape) > 3 else ()
    rest = shape[: len(shape) - len(channels)]
    while len(rest) > 2 and rest[-1] == 1:
        rest = rest[:-1]
    if has_channels and not channels:
        raise ImageError(
            f"{path} is {format_shape(shape)}, without an axis of channels: fit without "
            "channel_axis (--channel-axis), or give files that have one"
        )
    if len(rest) not in (2, 3):
        raise ImageError(
            f"{path} is {format_shape(shape)}, and an image has 2 or 3 axes: give one volume per "
            "file, or fit with channel_axis=-1 (--channel-axis -1) if the last axis holds channels "
            "or classes"
        )
    return rest, channels


def check_affine(path: Path, affine: Affine) -> None:
    """Raise an ImageError if an affine does not say where voxels are."""
    if not (np.abs(affine) < _FARTHEST).all():  # false for NaN
        raise ImageError(f"{path} has an affine that is not finite: set its sform or qform again")
    edges = np.linalg.norm(affine[:3, :3], axis=0)
    if edges.min() > 0 and abs(np.linalg.det(affine[:3, :3] / edges)) > _LEAST_VOLUME:
        return
    raise ImageError(f"{path} has a singular affine: set its sform or qform again")
