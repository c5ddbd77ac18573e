"""Spectra: multiplying Fourier coefficients by a real symmetric matrix at every frequency."""

from __future__ import annotations

from anamorph.kernels.compile import Array, kernel, per_voxel


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


@per_voxel
def _multiply_2d(first: Array, second: Array, symbol: Array) -> None:
    s_11, s_22, s_12 = symbol[0], symbol[1], symbol[2]
    for r in range(first.size):
        a, b = first[r], second[r]
        first[r] = s_11 * a + s_12 * b
        second[r] = s_12 * a + s_22 * b


@per_voxel
def _multiply_3d(first: Array, second: Array, third: Array, symbol: Array, width: int) -> None:
    s_11, s_22, s_33 = symbol[0], symbol[1], symbol[2]
    s_12, s_13, s_23 = symbol[3], symbol[4], symbol[5]
    for r in range(width):
        a, b, c = first[r], second[r], third[r]
        first[r] = s_11 * a + s_12 * b + s_13 * c
        second[r] = s_12 * a + s_22 * b + s_23 * c
        third[r] = s_13 * a + s_23 * b + s_33 * c


@per_voxel
def _multiply_one_field_3d(first: Array, second: Array, third: Array, symbol: Array) -> None:
    # Without views of two numbers each, which would cost more than the multiplication.
    for k in range(symbol.shape[0]):
        s_11, s_22, s_33 = symbol[k, 0], symbol[k, 1], symbol[k, 2]
        s_12, s_13, s_23 = symbol[k, 3], symbol[k, 4], symbol[k, 5]
        a, b, c = first[k, 0], second[k, 0], third[k, 0]
        d, e, f = first[k, 1], second[k, 1], third[k, 1]
        first[k, 0] = s_11 * a + s_12 * b + s_13 * c
        first[k, 1] = s_11 * d + s_12 * e + s_13 * f
        second[k, 0] = s_12 * a + s_22 * b + s_23 * c
        second[k, 1] = s_12 * d + s_22 * e + s_23 * f
        third[k, 0] = s_13 * a + s_23 * b + s_33 * c
        third[k, 1] = s_13 * d + s_23 * e + s_33 * f


@kernel
def multiply_real_symbol(spectrum: Array, symbol: Array, ny: int, nx: int) -> None:
    """Multiply planes of vectors by a symbol in the real Fourier basis of `planes`, in place.

    Parameters
    ----------
    spectrum : (2, frequency, lanes) floats
        Coefficients of the two components; frequencies are a grid of ny x nx.
    symbol : (frequency, 3) floats
        11, 22 and 12: the last, odd in both frequencies, takes each function to its partner, cosine
        to sine and back along both axes.
    """
    first, second = spectrum[0], spectrum[1]
    for k in range(symbol.shape[0]):
        y, x = k // nx, k % nx
        partner = ((ny - y) % ny) * nx + (nx - x) % nx
        if partner >= k:
            _multiply_partners(
                first[k], second[k], first[partner], second[partner], symbol[k], partner == k
            )


@per_voxel
def _multiply_partners(
    first: Array,
    second: Array,
    first_partner: Array,
    second_partner: Array,
    symbol: Array,
    is_alone: bool,
) -> None:
    s_11, s_22, s_12 = symbol[0], symbol[1], symbol[2]
    if is_alone:  # a sine of it would be zero everywhere
        for r in range(first.size):
            first[r] *= s_11
            second[r] *= s_22
    else:
        for r in range(first.size):
            a, b, c, d = first[r], second[r], first_partner[r], second_partner[r]
            first[r] = s_11 * a - s_12 * d
            second[r] = s_22 * b - s_12 * c
            first_partner[r] = s_11 * c - s_12 * b
            second_partner[r] = s_22 * d - s_12 * a
