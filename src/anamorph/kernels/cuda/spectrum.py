"""Spectra on a GPU: products of vector fields with a symbol, from transform to transform.

Making a plan of a Fourier transform takes longer than many transforms, so plans are kept. The
number of images varies all the time, as some converge before others, and plans exist for few
numbers only: fields have room for as many images as the next larger plan takes. The contents of
the spare room do not matter.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import cupy
import numpy as np
from cupyx.scipy.fft import get_fft_plan
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel, flattened
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided_quickly,
    multiplied,
    read_length,
    shifted,
)
from anamorph.kernels.formulas.symmetric import multiplied_by_2x2, multiplied_by_3x3

_ZERO = np.float32(0)
_TILE = 32  # numbers of a field next to each other
_MOST_FIELDS = 8  # with tiles next to each other: the symbol is read once for all
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


@device_kernel
def _multiply_symbol(
    spectrum, symbol, mean, factor, is_mean_known, n_fields, n_axes, width, n_tiles, together
):
    """Multiply spectra by a symbol; one thread per tile of some fields, field and number.

    Arrays are flat, `n_tiles` and `together` divisors. The others are as for `SymbolProduct`.
    """
    thread = cuda.grid(1)
    rest, member = divided_quickly(thread // _TILE, together)
    group, tile = divided_quickly(rest, n_tiles)
    n = added(multiplied(group, read_length(together)), member)
    i = added(multiplied(tile, _TILE), thread % _TILE)
    if n >= n_fields or i >= width:
        return
    k, n_frequencies = i >> 1, width >> 1
    first = added(multiplied(n, multiplied(n_axes, width)), i)
    second, third = added(first, width), added(first, multiplied(2, width))
    if i == 0 and not is_mean_known:
        for axis in range(n_axes):
            total = spectrum[shifted(first, multiplied(axis, width))]
            mean[shifted(multiplied(n, n_axes), axis)] = factor * total
    if k == 0 and is_mean_known:
        for axis in range(n_axes):
            known = mean[shifted(multiplied(n, n_axes), axis)]
            spectrum[shifted(first, multiplied(axis, width))] = known if i == 0 else _ZERO
    elif n_axes == 2:
        a, b = spectrum[shifted(first, 0)], spectrum[shifted(second, 0)]
        s_11, s_22 = symbol[shifted(k, 0)], symbol[shifted(k, n_frequencies)]
        s_12 = symbol[shifted(k, multiplied(2, n_frequencies))]
        a, b = multiplied_by_2x2(s_11, s_22, s_12, a, b)
        spectrum[shifted(first, 0)], spectrum[shifted(second, 0)] = a, b
    else:
        a, b = spectrum[shifted(first, 0)], spectrum[shifted(second, 0)]
        c = spectrum[shifted(third, 0)]
        s_11, s_22 = symbol[shifted(k, 0)], symbol[shifted(k, n_frequencies)]
        s_33 = symbol[shifted(k, multiplied(2, n_frequencies))]
        s_12 = symbol[shifted(k, multiplied(3, n_frequencies))]
        s_13 = symbol[shifted(k, multiplied(4, n_frequencies))]
        s_23 = symbol[shifted(k, multiplied(5, n_frequencies))]
        a, b, c = multiplied_by_3x3(s_11, s_22, s_33, s_12, s_13, s_23, a, b, c)
        spectrum[shifted(first, 0)], spectrum[shifted(second, 0)] = a, b
        spectrum[shifted(third, 0)] = c


class SymbolProduct:
    """Multiplies vector fields by a symbol in the Fourier domain, any number of times.

    Parameters
    ----------
    fields, out : (room, d, *space)
        See `empty_fields`; they may be the same.
    symbol : (packed d x d, frequency)
    mean : (N, d)
        The means over space of N fields.
    is_mean_known : bool
        Whether the results have these means, which are known better than the input can tell. If
        not, `mean` is filled with the means of the input times `mean_factor`.
    mean_factor : float
    """

    def __init__(
        self,
        fields: Any,
        symbol: Any,
        out: Any,
        mean: Any,
        *,
        is_mean_known: bool = False,
        mean_factor: float = 1.0,
    ) -> None:
        self._fields, self._out, self._spectra = fields, out, empty_spectra(fields)
        n_fields, n_axes = mean.shape
        n_voxels, width = math.prod(fields.shape[2:]), 2 * symbol.shape[1]
        together, n_tiles = min(_MOST_FIELDS, n_fields), -(-width // _TILE)
        n_groups = -(-n_fields // together)
        self._multiply = _multiply_symbol.prepare(
            n_groups * together * n_tiles * _TILE,
            *(flattened(self._spectra.view(np.float32)), flattened(symbol), flattened(mean)),
            *(np.float32(mean_factor / n_voxels), is_mean_known, n_fields, n_axes, width),
            *(as_divisor(n_tiles), as_divisor(together)),
        )

    def __call__(self) -> None:
        """Fill `out` with the products."""
        transform(self._fields, self._spectra)
        self._multiply()
        transform_back(self._spectra, self._out)
