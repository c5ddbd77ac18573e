"""Volumes of FreeSurfer (.mgh, .mgz) and Analyze or NIfTI pairs (.img with .hdr), by nibabel."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gzip
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.analyze import AnalyzeHeader
from nibabel.arrayproxy import ArrayProxy
from nibabel.freesurfer.mghformat import MGHError, MGHHeader
from nibabel.nifti1 import Nifti1PairHeader
from nibabel.spatialimages import HeaderDataError
from nibabel.spm99analyze import Spm99AnalyzeHeader
from nibabel.wrapstruct import WrapStructError
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid
from anamorph.images.readers.nifti import check_affine, split_shape
from anamorph.images.readers.source import (
    Source,
    check_size,
    integer_type,
    quiet,
    read_stamp,
    reading,
)

#: Of files to list; of a pair, the one with the voxels.
SUFFIXES = (".mgz", ".mgh", ".img", ".hdr")

_DAMAGE = (HeaderDataError, WrapStructError, MGHError, KeyError, TypeError)
_reading = partial(reading, kind="a volume", damage=_DAMAGE)
_HEADER_BYTES = 348  # of Analyze and of NIfTI-1
_PAIR = b"ni1\0"
_MGH_BYTES = 284


def open_volume(path: Path, *, has_channels: bool) -> Source:
    """Open a volume that is not a single NIfTI file.

    Parameters
    ----------
    path : Path
        Of a pair, either file.
    has_channels : bool
        Whether the last axis holds channels.

    Returns
    -------
    Source
    """
    stored = stored_in(path)
    stamp = read_stamp(stored)
    with _reading(path), quiet():
        header, place_is_guess = _read_header(path)
        proxy = ArrayProxy(os.fspath(stored), header, mmap=False)
        affine = np.array(header.get_best_affine(), np.float64)
    shape = tuple(int(length) for length in proxy.shape)
    n_bytes = int(proxy.offset) + math.prod(shape) * proxy.dtype.itemsize
    check_size(path, shape, n_bytes, stamp[0], is_compressed=_is_compressed(path))
    check_affine(path, affine)
    space, channels = split_shape(path, shape, has_channels)
    is_raw = (proxy.slope, proxy.inter) == (1, 0)
    integers = integer_type(path, proxy.dtype)
    return Source(
        path=stored,
        grid=Grid(space, affine),
        n_channels=channels[0] if channels else None,
        integers=integers if is_raw else None,
        is_slow=_is_compressed(path),
        stamp=stamp,
        decode=partial(_decode, path, (*space, *channels)),
        place_is_guess=place_is_guess,
    )


def stored_in(path: Path) -> Path:
    """Return the file that holds the voxels: the .img of a pair, else the file itself."""
    return _other(path, ".hdr", ".img") if path.suffix.lower() == ".hdr" else path


def _other(path: Path, suffix: str, other: str) -> Path:
    """Return the other file of a pair, in small or capital letters as this one."""
    is_capital = path.suffix == suffix.upper()
    return path.with_suffix(other.upper() if is_capital else other)


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".mgz"


def _read_header(path: Path) -> tuple[Any, bool]:
    """Return the header, and whether it leaves open where voxels are."""
    if path.suffix.lower() in (".mgz", ".mgh"):
        with gzip.open(path) if _is_compressed(path) else path.open("rb") as stream:
            header = MGHHeader(stream.read(_MGH_BYTES))
        return header, not header["goodRASFlag"]
    header_file = _other(path, ".img", ".hdr") if path.suffix.lower() == ".img" else path
    if not header_file.exists():
        raise ImageError(f"{path} needs its header {header_file.name} beside it")
    raw = header_file.read_bytes()[:_HEADER_BYTES]
    if raw[-4:] == _PAIR:
        pair = Nifti1PairHeader(raw)
        return pair, not (pair["sform_code"] or pair["qform_code"])
    for header_type in (Spm99AnalyzeHeader, AnalyzeHeader):
        if header_type.may_contain_header(raw):
            return header_type(raw), True  # Analyze knows no orientation
    raise ImageError(f"{header_file} is not the header of an Analyze or NIfTI image: convert it")


def _decode(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    with _reading(path), quiet():
        header, _ = _read_header(path)
        proxy = ArrayProxy(os.fspath(stored_in(path)), header, mmap=False)
        return np.asanyarray(proxy).reshape(shape)
