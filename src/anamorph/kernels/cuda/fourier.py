"""Fourier transforms on a GPU, with plans that are made once and kept.

Making a plan takes longer than many transforms. The number of images varies all the time, as some
converge before others, and plans exist for few numbers only: fields have room for as many images as
the next larger plan takes. The contents of the spare room do not matter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np
from cupyx.scipy.fft import get_fft_plan

_FINENESS = 2  # leading bits of a room after the first: it is at most a quarter too large
_MOST_PLANS = 96


def room_for(n_fields: int) -> int:
    """Return the number of fields that the next larger plan takes."""
    step = 1 << max(0, n_fields.bit_length() - 1 - _FINENESS)
    return -(-n_fields // step) * step


def empty_fields(n_fields: int, n_axes: int, space: tuple[int, ...]) -> Any:
    """Return float32 fields (room, d, *space) with nothing in them."""
    return cupy.empty((room_for(n_fields), n_axes, *space), np.float32)


def empty_spectra(fields: Any) -> Any:
    """Return complex64 spectra (room, d, ..., n // 2 + 1) for fields (room, d, *space)."""
    *leading, last = fields.shape
    return cupy.empty((*leading, last // 2 + 1), np.complex64)


def transform(fields: Any, spectra: Any) -> None:
    """Fill spectra with the unscaled transform of fields."""
    _plan(fields.shape, "R2C").fft(fields, spectra, cupy.cuda.cufft.CUFFT_FORWARD)


def transform_back(spectra: Any, fields: Any) -> None:
    """Fill fields with the unscaled inverse transform of spectra, and overwrite spectra."""
    _plan(fields.shape, "C2R").fft(spectra, fields, cupy.cuda.cufft.CUFFT_INVERSE)


@lru_cache(maxsize=_MOST_PLANS)
def _plan(shape: tuple[int, ...], kind: str) -> Any:
    axes = tuple(range(2, len(shape)))
    fields = cupy.empty(shape, np.float32)
    if kind == "R2C":
        return get_fft_plan(fields, axes=axes, value_type=kind)
    return get_fft_plan(empty_spectra(fields), shape=shape[2:], axes=axes, value_type=kind)
