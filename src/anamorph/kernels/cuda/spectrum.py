"""Spectra on a GPU: the twin of `kernels.spectrum`, one thread per frequency."""

from __future__ import annotations

from numba import cuda

from anamorph.kernels.cuda.launch import device_kernel


@device_kernel
def multiply_symbol(spectrum, symbol, total, has_total):  # type: ignore[no-untyped-def]
    """Multiply spectra of vector fields by a symbol, in place.

    spectrum : (N, d, frequency) complex; symbol : (packed d x d, frequency); total : (N, d), the
    coefficients at frequency zero where they are known. One thread per field and frequency.
    """
    n_frequencies = spectrum.shape[2]
    n, k = cuda.grid(1) // n_frequencies, cuda.grid(1) % n_frequencies
    if n >= spectrum.shape[0]:
        return
    if has_total and k == 0:
        for axis in range(spectrum.shape[1]):
            spectrum[n, axis, 0] = total[n, axis]
    elif spectrum.shape[1] == 2:
        a, b = spectrum[n, 0, k], spectrum[n, 1, k]
        spectrum[n, 0, k] = symbol[0, k] * a + symbol[2, k] * b
        spectrum[n, 1, k] = symbol[2, k] * a + symbol[1, k] * b
    else:
        a, b, c = spectrum[n, 0, k], spectrum[n, 1, k], spectrum[n, 2, k]
        spectrum[n, 0, k] = symbol[0, k] * a + symbol[3, k] * b + symbol[4, k] * c
        spectrum[n, 1, k] = symbol[3, k] * a + symbol[1, k] * b + symbol[5, k] * c
        spectrum[n, 2, k] = symbol[4, k] * a + symbol[5, k] * b + symbol[2, k] * c
