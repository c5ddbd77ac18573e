"""Spectra on a GPU: the twin of `kernels.spectrum`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import divide, index

_ZERO = np.float32(0)
_FIELDS_PER_THREAD = 8  # which share what is read of the symbol
_FEWEST_THREADS = 2**19  # that keep a GPU busy


@device_kernel
def _multiply_symbol(spectrum, symbol, mean, has_mean, n_fields, each):
    """One thread per number of a field, for `each` fields."""
    some, i = divide(cuda.grid(1), spectrum.shape[2])
    k = index(i >> 1)
    first = index(some * each)
    last = min(first + each, n_fields)
    if has_mean and k == 0:
        for n in range(first, last):
            for axis in range(spectrum.shape[1]):
                spectrum[n, axis, i] = mean[n, axis] if i == 0 else _ZERO
    elif spectrum.shape[1] == 2:
        s_11, s_22, s_12 = symbol[0, k], symbol[1, k], symbol[2, k]
        for n in range(first, last):
            a, b = spectrum[n, 0, i], spectrum[n, 1, i]
            spectrum[n, 0, i] = s_11 * a + s_12 * b
            spectrum[n, 1, i] = s_12 * a + s_22 * b
    else:
        s_11, s_22, s_33 = symbol[0, k], symbol[1, k], symbol[2, k]
        s_12, s_13, s_23 = symbol[3, k], symbol[4, k], symbol[5, k]
        for n in range(first, last):
            a, b, c = spectrum[n, 0, i], spectrum[n, 1, i], spectrum[n, 2, i]
            spectrum[n, 0, i] = s_11 * a + s_12 * b + s_13 * c
            spectrum[n, 1, i] = s_12 * a + s_22 * b + s_23 * c
            spectrum[n, 2, i] = s_13 * a + s_23 * b + s_33 * c


def multiply_symbol(spectrum: Any, symbol: Any, mean: Any | None, n_fields: int) -> None:
    """Multiply spectra of vector fields by a symbol, in place.

    Parameters
    ----------
    spectrum : (room, d, 2 * frequency)
        Real and imaginary parts side by side.
    symbol : (packed d x d, frequency)
    mean : (N, d), optional
        The coefficients at frequency zero where they are known.
    n_fields : int
        N.
    """
    width = spectrum.shape[2]
    each = min(_FIELDS_PER_THREAD, max(1, n_fields * width // _FEWEST_THREADS))
    has_mean = mean is not None
    known = mean if has_mean else symbol
    _multiply_symbol(
        -(-n_fields // each) * width, spectrum, symbol, known, has_mean, n_fields, each
    )
