"""Symbols of small planes, by products with small matrices instead of Fourier transforms.

Up to some 32 pixels along an axis, multiplying many images at once by a matrix of cosines and
sines takes half the time of a fast transform. The basis is real, cos_k(y) cos_l(x) and so on, one
function per row of `real_fourier_matrix`: symbols that are even in both frequencies act on each
of them alone, and those odd in both, sin(k) sin(l), take cosines to sines and back.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from anamorph.geometry.grid import Array
from anamorph.kernels.cpu.spectrum import multiply_real_symbol

_LONGEST_AXIS = 32
_FEWEST_IMAGES = 8


def is_small_plane(space: tuple[int, ...], n_images: int) -> bool:
    """Tell whether so many images at a time are better multiplied by matrices."""
    return len(space) == 2 and max(space) <= _LONGEST_AXIS and n_images >= _FEWEST_IMAGES


@lru_cache(maxsize=32)
def real_fourier_matrix(length: int, dtype: np.dtype[np.floating]) -> Array:
    """Return orthonormal rows: cosines of frequencies 0, 1, ..., then sines of ..., 2, 1.

    Row k and row length - k are the cosine and the sine of one frequency.
    """
    k, x = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    is_cosine = k <= length // 2
    angle = 2 * np.pi * np.where(is_cosine, k, length - k) * x / length
    matrix = np.where(is_cosine, np.cos(angle), np.sin(angle))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    result = np.ascontiguousarray(matrix, dtype)
    result.flags.writeable = False  # it is shared by all who ask for the same length
    return result


def apply_real_symbol(
    fields: Array, symbol: Array, scratch: Array, total: Array | None = None
) -> Array:
    """Return vector fields (2, ny, nx, lanes) multiplied by a symbol in the real Fourier basis.

    Parameters
    ----------
    fields : array of shape (2, ny, nx, lanes)
    symbol : array of shape (ny * nx, 3)
        At all frequencies, in the order of ``fftn``: 11, 22 and 12.
    scratch : array of shape (2, 2, ny, nx, lanes)
        The result is the second half of it: fresh memory would take as long as the arithmetic.
    total : array of shape (2, lanes), optional
        The sum over space that the result has, where it is known better than the input can tell.
    """
    _, ny, nx, lanes = fields.shape
    along_y, along_x = (real_fourier_matrix(n, fields.dtype) for n in (ny, nx))
    first, second = scratch
    first_rows, second_rows = scratch.reshape(2, 2, ny, nx * lanes)
    np.matmul(along_y, fields.reshape(2, ny, nx * lanes), out=first_rows)
    np.matmul(along_x, first, out=second)
    multiply_real_symbol(second.reshape(2, ny * nx, lanes), symbol, ny, nx)
    if total is not None:
        second[:, 0, 0] = total / np.sqrt(ny * nx)
    np.matmul(along_x.T, second, out=first)
    np.matmul(along_y.T, first_rows, out=second_rows)
    return np.asarray(second)
