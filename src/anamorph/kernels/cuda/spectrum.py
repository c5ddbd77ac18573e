"""Spectra on a GPU: the twin of `kernels.spectrum`, one thread per number."""

from __future__ import annotations

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel
from anamorph.kernels.cuda.places import divide, index

_ZERO = np.float32(0)


@device_kernel
def multiply_symbol(spectrum, symbol, mean, has_mean):
    """Multiply spectra of vector fields by a symbol, in place.

    spectrum : (N, d, 2 * frequency), real and imaginary parts side by side; symbol :
    (packed d x d, frequency); mean : (N, d), the coefficients at frequency zero where they are
    known. One thread per field and number.
    """
    n, i = divide(cuda.grid(1), spectrum.shape[2])
    if n >= (mean.shape[0] if has_mean else spectrum.shape[0]):
        return
    k = index(i >> 1)
    if has_mean and k == 0:
        for axis in range(spectrum.shape[1]):
            spectrum[n, axis, i] = mean[n, axis] if i == 0 else _ZERO
    elif spectrum.shape[1] == 2:
        a, b = spectrum[n, 0, i], spectrum[n, 1, i]
        spectrum[n, 0, i] = symbol[0, k] * a + symbol[2, k] * b
        spectrum[n, 1, i] = symbol[2, k] * a + symbol[1, k] * b
    else:
        a, b, c = spectrum[n, 0, i], spectrum[n, 1, i], spectrum[n, 2, i]
        spectrum[n, 0, i] = symbol[0, k] * a + symbol[3, k] * b + symbol[4, k] * c
        spectrum[n, 1, i] = symbol[3, k] * a + symbol[1, k] * b + symbol[5, k] * c
        spectrum[n, 2, i] = symbol[4, k] * a + symbol[5, k] * b + symbol[2, k] * c
