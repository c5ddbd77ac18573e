"""Small planes, whose symbols are faster to apply by small matrices than by Fourier transforms.

Up to some 32 pixels along an axis, multiplying many images at once by a matrix of cosines and sines
takes half the time of a fast transform: see `kernels.cpu.planes`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from anamorph.geometry.fields import Array
from anamorph.geometry.operators import packed_symbol

_LONGEST_AXIS = 32
_FEWEST_IMAGES = 8


def is_small_plane(space: tuple[int, ...], n_images: int) -> bool:
    """Tell whether matrices are the faster way for so many images at a time."""
    return len(space) == 2 and max(space) <= _LONGEST_AXIS and n_images >= _FEWEST_IMAGES


@lru_cache(maxsize=32)
def real_fourier_matrix(length: int, dtype: np.dtype[np.floating]) -> Array:
    """Return orthonormal rows (length, length): cosines of 0, 1, ..., then sines of ..., 2, 1.

    Row k and row length - k are the cosine and the sine of one frequency.
    """
    k, x = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    is_cosine = k <= length // 2
    angle = 2 * np.pi * np.where(is_cosine, k, length - k) * x / length
    matrix = np.where(is_cosine, np.cos(angle), np.sin(angle))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    result = np.ascontiguousarray(matrix, dtype)
    result.flags.writeable = False  # all callers with the same length share it
    return result


@lru_cache(maxsize=16)
def plane_symbol(
    penalty: tuple[float, ...],
    space: tuple[int, ...],
    voxel_size: tuple[float, ...],
    dtype: np.dtype[np.floating],
    *,
    inverse: bool,
) -> Array:
    """Return the symbol of L or of G for `multiply_planes`: (nx * ny, 3), x before y."""
    symbol = packed_symbol(penalty, space, voxel_size, dtype, inverse=inverse, half=False)
    swapped = np.ascontiguousarray(symbol.reshape(*space, -1).swapaxes(0, 1))
    swapped.flags.writeable = False  # all callers with the same arguments share it
    return swapped.reshape(len(symbol), -1)
