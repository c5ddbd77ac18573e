"""Numbers as text that a page holds: few bits, differences, deflate, base64.

Modes are smooth, so that differences between neighbours along every axis are small. Each mode and
channel is rounded to 14 bits of its largest value: three bits more exact than float16 there, and
half its size after compression.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Array, Float32Array

_LARGEST = 2**13 - 1
_LEVEL = 6  # of compression: 9 takes four times as long for 1 % less


def rounded(fields: Array) -> tuple[NDArray[np.int16], Float32Array]:
    """Return fields (n, *space) as integers, and the unit of each field, (n,)."""
    largest = np.abs(fields).reshape(len(fields), -1).max(axis=1, initial=0)
    units = np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)
    integers = np.rint(fields / units.reshape(-1, *(1,) * (fields.ndim - 1)))
    return integers.astype(np.int16), units


def restored(integers: NDArray[np.int16], units: Float32Array) -> Float32Array:
    """Return the fields (n, *space) that the page makes of integers and units."""
    return integers * units.reshape(-1, *(1,) * (integers.ndim - 1))


def packed_integers(integers: NDArray[np.int16]) -> bytes:
    """Return fields (n, *space) as differences along each axis, low bytes before high bytes."""
    differences = integers.view(np.uint16)
    for axis in range(1, integers.ndim):
        differences = np.diff(differences, axis=axis, prepend=np.uint16(0))
    return _deflated(_byte_planes(differences))


def packed_floats(fields: Array) -> bytes:
    """Return numbers as float32, byte planes apart."""
    return _deflated(_byte_planes(np.ascontiguousarray(fields, "<f4").view("<u4")))


def packed_bytes(image: NDArray[np.uint8]) -> bytes:
    """Return an image (C, *space) of bytes as differences along its last axis."""
    return _deflated(np.diff(image, axis=-1, prepend=np.uint8(0)).tobytes())


def as_text(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def _byte_planes(words: NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(words, words.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).reshape(-1, words.itemsize).T.tobytes()


def _deflated(data: bytes) -> bytes:
    return zlib.compress(data, _LEVEL)
