"""Spectra: products of Fourier coefficients with a real symmetric matrix at every frequency."""

from __future__ import annotations

from anamorph.kernels.compile import Array, formula, kernel
from anamorph.kernels.formulas.symmetric import multiplied_by_2x2, multiplied_by_3x3


@kernel
def multiply_symbol(spectrum: Array, symbol: Array) -> None:
    """Multiply spectra of vector fields by a symbol, in place.

    Parameters
    ----------
    spectrum : (N, d, frequency, 2 * lanes) floats
        Real and imaginary parts side by side, of one or several fields.
    symbol : (frequency, packed d x d) floats
        Diagonal first, then above it.
    """
    n_fields, n_dims, n_frequencies, width = spectrum.shape
    for n in range(n_fields):
        if n_dims == 2:
            for k in range(n_frequencies):
                _multiply_2d(spectrum[n, 0, k], spectrum[n, 1, k], symbol[k])
        elif width > 2:
            for k in range(n_frequencies):
                _multiply_3d(
                    spectrum[n, 0, k], spectrum[n, 1, k], spectrum[n, 2, k], symbol[k], width
                )
        else:
            _multiply_one_field_3d(spectrum[n, 0], spectrum[n, 1], spectrum[n, 2], symbol)


@formula
def _multiply_2d(first: Array, second: Array, symbol: Array) -> None:
    s_11, s_22, s_12 = symbol[0], symbol[1], symbol[2]
    for r in range(first.size):
        first[r], second[r] = multiplied_by_2x2(s_11, s_22, s_12, first[r], second[r])


@formula
def _multiply_3d(first: Array, second: Array, third: Array, symbol: Array, width: int) -> None:
    s_11, s_22, s_33 = symbol[0], symbol[1], symbol[2]
    s_12, s_13, s_23 = symbol[3], symbol[4], symbol[5]
    for r in range(width):
        first[r], second[r], third[r] = multiplied_by_3x3(
            s_11, s_22, s_33, s_12, s_13, s_23, first[r], second[r], third[r]
        )


@formula
def _multiply_one_field_3d(first: Array, second: Array, third: Array, symbol: Array) -> None:
    # Real and imaginary parts without views of two numbers, which would cost more than the product.
    for k in range(symbol.shape[0]):
        s_11, s_22, s_33 = symbol[k, 0], symbol[k, 1], symbol[k, 2]
        s_12, s_13, s_23 = symbol[k, 3], symbol[k, 4], symbol[k, 5]
        a, b, c = multiplied_by_3x3(
            s_11, s_22, s_33, s_12, s_13, s_23, first[k, 0], second[k, 0], third[k, 0]
        )
        d, e, f = multiplied_by_3x3(
            s_11, s_22, s_33, s_12, s_13, s_23, first[k, 1], second[k, 1], third[k, 1]
        )
        first[k, 0], first[k, 1] = a, d
        second[k, 0], second[k, 1] = b, e
        third[k, 0], third[k, 1] = c, f
