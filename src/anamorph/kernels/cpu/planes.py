"""Symbols of small planes, by products with small matrices instead of Fourier transforms.

The basis is real, cos_k(y) cos_l(x) and so on: one function per row of a matrix along each axis.
Symbols that are even in both frequencies act on each function alone. Those odd in both,
sin(k) sin(l), take each function to its partner: cosine to sine and back along both axes.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, formula, kernel
from anamorph.kernels.formulas.symmetric import multiplied_by_2x2


@kernel
def multiply_planes(
    source: Array,
    out: Array,
    scratch: Array,
    symbol: Array,
    along_y: Array,
    along_x: Array,
    mean_coefficient: Array,
    is_mean_known: bool,
) -> None:
    """Multiply planes of vectors by a symbol; the halo of `out` stays as it is.

    Parameters
    ----------
    source, out : (2, ny + 2, nx + 2, lanes)
        Blocks, see `kernels.blocks`.
    scratch : (2, 2, ny, nx, lanes)
        Fresh memory would take as long as the arithmetic.
    symbol : (nx * ny, 3)
        11, 22 and 12 at all frequencies, in the order of ``fftn`` with x before y.
    along_y, along_x : (ny, ny) and (nx, nx)
        Orthonormal rows of cosines and sines.
    mean_coefficient : (2, lanes)
        The coefficient of the constant in the result, if `is_mean_known`: it may be known better
        than the input can tell.
    """
    _, _, ny, nx, lanes = scratch.shape
    flat = scratch.reshape(2, 2, ny * nx * lanes)
    first, second = flat[0], flat[1]
    back_y, back_x = along_y.T.copy(), along_x.T.copy()
    for c in range(2):
        rows, swapped = first[c].reshape(ny, nx * lanes), second[c].reshape(ny, nx * lanes)
        for y in range(ny):
            rows.reshape(ny, nx, lanes)[y] = source[c, y + 1, 1 : nx + 1]
        np.dot(along_y, rows, swapped)
        _swap_axes(swapped.reshape(ny, nx, lanes), first[c].reshape(nx, ny, lanes))
        np.dot(along_x, first[c].reshape(nx, ny * lanes), second[c].reshape(nx, ny * lanes))
    _multiply_coefficients(second.reshape(2, nx * ny, lanes), symbol, nx, ny)
    if is_mean_known:
        second.reshape(2, nx * ny, lanes)[:, 0] = mean_coefficient
    for c in range(2):
        columns, rows = first[c].reshape(nx, ny * lanes), first[c].reshape(ny, nx * lanes)
        np.dot(back_x, second[c].reshape(nx, ny * lanes), columns)
        _swap_axes(columns.reshape(nx, ny, lanes), second[c].reshape(ny, nx, lanes))
        np.dot(back_y, second[c].reshape(ny, nx * lanes), rows)
        for y in range(ny):
            out[c, y + 1, 1 : nx + 1] = rows.reshape(ny, nx, lanes)[y]


@formula
def _swap_axes(source: Array, out: Array) -> None:
    """Set out (b, a, lanes) to source (a, b, lanes), which makes all matrix products large."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            line, place = source[i, j], out[j, i]
            for r in range(line.size):
                place[r] = line[r]


@kernel
def _multiply_coefficients(coefficients: Array, symbol: Array, nx: int, ny: int) -> None:
    """Multiply coefficients (2, frequency, lanes) by a symbol (frequency, 3), in place."""
    first, second = coefficients[0], coefficients[1]
    for k in range(symbol.shape[0]):
        x, y = k // ny, k % ny
        partner = ((nx - x) % nx) * ny + (ny - y) % ny
        if partner >= k:
            _multiply_partners(
                first[k], second[k], first[partner], second[partner], symbol[k], partner == k
            )


@formula
def _multiply_partners(
    first: Array,
    second: Array,
    first_partner: Array,
    second_partner: Array,
    symbol: Array,
    is_alone: bool,
) -> None:
    s_11, s_22, s_12 = symbol[0], symbol[1], symbol[2]
    if is_alone:  # the sine would be zero everywhere
        for r in range(first.size):
            first[r] *= s_11
            second[r] *= s_22
    else:
        for r in range(first.size):
            a, b, c, d = first[r], second[r], first_partner[r], second_partner[r]
            first[r], second_partner[r] = multiplied_by_2x2(s_11, s_22, -s_12, a, d)
            first_partner[r], second[r] = multiplied_by_2x2(s_11, s_22, -s_12, c, b)
