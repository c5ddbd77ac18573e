"""The operator L of velocity fields and its Green's function G, applied in the Fourier domain.

G is L^g of the paper, the inverse of L (Algorithm 4); symbols are those of `penalties`.

Up to some 32 pixels along an axis, multiplying many images at once by a matrix of cosines and sines
takes half the time of a fast transform: see `kernels.cpu.planes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike

from anamorph.arrays.devices import (
    array_namespace,
    beside,
    fourier_namespace,
    is_on_device,
    kernels_for,
)
from anamorph.arrays.typing import Array
from anamorph.geometry.fields import check_penalty, check_vector_field, check_voxel_size
from anamorph.geometry.penalties import (
    VELOCITY_WEIGHTS,
    angular_frequencies,
    field_symbol,
    inverse_symbol,
    velocity_symbol,
)
from anamorph.kernels.cpu.spectrum import multiply_symbol
from anamorph.kernels.threads import n_threads

# Planes up to this long, and so many at a time, are faster multiplied by small matrices.
_LONGEST_AXIS, _FEWEST_IMAGES = 32, 8


def momentum(v: ArrayLike, penalty: Sequence[float], voxel_size: ArrayLike | None = None) -> Array:
    """Return the momentum u = L v of velocity fields.

    Parameters
    ----------
    v : array of shape (..., d, *space)
        Velocities in voxels, on a periodic grid of d = 2 or 3 axes.
    penalty : 5 numbers
        Weights (w0, ..., w4) of absolute size, stretching, bending, elasticity and divergence.
    voxel_size : d numbers, optional
        Size of a voxel along each axis; 1 by default.

    Returns
    -------
    array of the shape of v
        float32, or float64 if v is.
    """
    return _apply_operator(v, "v", penalty, voxel_size, inverse=False)


def velocity(u: ArrayLike, penalty: Sequence[float], voxel_size: ArrayLike | None = None) -> Array:
    """Return the velocity v = G u of momenta: the inverse of `momentum`.

    Parameters
    ----------
    u : array of shape (..., d, *space)
        Momenta on a periodic grid of d = 2 or 3 axes.
    penalty : 5 numbers
        As for `momentum`. With w0 = 0 the mean of v is 0.
    voxel_size : d numbers, optional

    Returns
    -------
    array of the shape of u
        Velocities in voxels; float32, or float64 if u is.
    """
    return _apply_operator(u, "u", penalty, voxel_size, inverse=True)


def field_momentum(fields: Array, penalty: Sequence[float], voxel_size: Sequence[float]) -> Array:
    """Return L a of scalar fields (..., *space): the penalty of means and appearances.

    Parameters
    ----------
    fields : array of shape (..., *space)
    penalty : 3 numbers
        Weights (w0, w1, w2) of absolute size, stretching and bending.
    voxel_size : d numbers
        Size of a voxel along each of the d spatial axes.
    """
    space = fields.shape[-len(voxel_size) :]
    axes = tuple(range(-len(space), 0))
    symbol = field_symbol(penalty, angular_frequencies(space, half=True), voxel_size)
    fourier = fourier_namespace(fields)
    workers = {} if is_on_device(fields) else {"workers": n_threads()}
    spectrum = fourier.rfftn(fields, axes=axes, **workers)
    spectrum *= beside(fields, symbol, fields.dtype)
    result: Array = fourier.irfftn(spectrum, s=space, axes=axes, overwrite_x=True, **workers)
    return result


def _apply_operator(
    field: ArrayLike,
    name: str,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None,
    *,
    inverse: bool,
) -> Array:
    n_dims = None if voxel_size is None else np.size(voxel_size)
    array, d = check_vector_field(field, name, n_dims)
    space = array.shape[-d:]
    weights, size = check_penalty(penalty, VELOCITY_WEIGHTS), check_voxel_size(voxel_size, d)
    fields = array.reshape(-1, d, *space)
    product = multiply_operator(fields, weights, size, inverse=inverse)
    return product.reshape(array.shape)


def multiply_operator(
    fields: Array,
    penalty: tuple[float, ...],
    voxel_size: tuple[float, ...],
    *,
    inverse: bool,
    mean: Array | None = None,
) -> Array:
    """Return L or G times fields (N, d, *space); `mean`, (N, d), replaces the mean if given."""
    n_fields, d, *space = fields.shape
    if is_on_device(fields):
        symbol = symbol_on_device(penalty, tuple(space), voxel_size, inverse=inverse)
        kernels = kernels_for(fields, "anamorph.kernels.cpu.spectrum")
        room = kernels.empty_fields(n_fields, d, tuple(space))
        room[:n_fields] = fields
        means = array_namespace(fields).empty((n_fields, d), np.float32) if mean is None else mean
        kernels.SymbolProduct(room, symbol, room, means, is_mean_known=mean is not None)()
        product: Array = room[:n_fields]
        return product
    symbol = packed_symbol(penalty, tuple(space), voxel_size, fields.dtype, inverse=inverse)
    total = None if mean is None else mean[..., None] * math.prod(space)
    return apply_symbol(fields[..., None], symbol, workers=n_threads(), total=total)[..., 0]


@lru_cache(maxsize=16)
def packed_symbol(
    penalty: tuple[float, ...],
    space: tuple[int, ...],
    voxel_size: tuple[float, ...],
    dtype: np.dtype[np.floating],
    *,
    inverse: bool,
    half: bool = True,
) -> Array:
    """Return the symbol of L or of G at the frequencies of ``rfftn``, (frequency, packed d x d).

    With ``half=False`` the frequencies are those of ``fftn``.
    """
    if inverse and not any(penalty[:4]):
        raise ValueError(
            f"penalty must have a positive weight among its first four, got {penalty}: the "
            "divergence alone leaves motions free, so the operator has no inverse"
        )
    frequencies = angular_frequencies(space, half=half)
    symbol = velocity_symbol(penalty, frequencies, voxel_size)
    if inverse:
        symbol = inverse_symbol(symbol)
    packed = np.ascontiguousarray(symbol.reshape(len(symbol), -1).T, dtype)
    packed.flags.writeable = False  # all callers with the same arguments share it
    return packed


def apply_symbol(
    fields: Array, symbol: Array, *, workers: int, total: Array | None = None
) -> Array:
    """Return vector fields (N, d, *space, lanes) multiplied by a symbol in the Fourier domain.

    `total`, (N, d, lanes), is the sum over space of the result, where it is known better than the
    input can tell.
    """
    n_fields, d, *space, lanes = fields.shape
    axes = tuple(range(2, 2 + d))
    spectrum = scipy.fft.rfftn(fields, axes=axes, workers=workers)
    multiply_symbol(spectrum.view(fields.dtype).reshape(n_fields, d, -1, 2 * lanes), symbol)
    if total is not None:
        spectrum[(slice(None), slice(None), *(0,) * d)] = total
    result: Array = scipy.fft.irfftn(
        spectrum, s=space, axes=axes, workers=workers, overwrite_x=True
    )
    return result


@lru_cache(maxsize=16)
def symbol_on_device(
    penalty: tuple[float, ...],
    space: tuple[int, ...],
    voxel_size: tuple[float, ...],
    *,
    inverse: bool,
) -> Array:
    """Return the symbol of L or of G on the GPU, (packed d x d, frequency).

    It is divided by the number of voxels, which spares the transforms their scaling.
    """
    dtype = np.dtype(np.float64)
    symbol = packed_symbol(penalty, space, voxel_size, dtype, inverse=inverse).T
    on_device: Array = import_module("cupy").asarray(symbol / math.prod(space), np.float32)
    return on_device.copy()


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
