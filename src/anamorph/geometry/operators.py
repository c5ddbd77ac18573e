"""The operators L^mu, L^a and L^v of the paper, and the Green's function G of L^v.

They are applied in the Fourier domain, where a penalty is a symbol. It is the list of its weights:
(w0, w1, w2) for scalar fields (the mean, the appearance basis), (w0, ..., w4) for velocity fields.
With k_i the angular frequency along axis i, h_i the voxel size, e_i = (2 - 2 cos k_i) / h_i^2 and
lap = sum_i e_i, the symbols are

- scalar fields: w0 + w1 lap + w2 lap^2
- velocities, component (i, i): h_i^2 [w0 + w1 lap + w2 lap^2 + w3 (lap + e_i) + w4 e_i]
- velocities, component (i, j): (w3 + w4) sin k_i sin k_j

All are computed in float64: summed in float32, w0 would be lost in w2, and translations with it.
G is the inverse of L^v (Algorithm 4).

Up to some 32 pixels along an axis, multiplying many images at once by a matrix of cosines and sines
takes half the time of a fast transform: see `kernels.cpu.planes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from itertools import combinations

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
from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry.fields import check_penalty, check_vector_field, check_voxel_size
from anamorph.kernels.cpu.spectrum import multiply_symbol
from anamorph.kernels.threads import n_threads

FIELD_WEIGHTS = 3
VELOCITY_WEIGHTS = 5

# Planes up to this long, and so many at a time, are faster multiplied by small matrices.
_LONGEST_AXIS, _FEWEST_IMAGES = 32, 8


def packed_pairs(size: int) -> list[tuple[int, int]]:
    """Return the order in which a symmetric matrix is packed: diagonal first, then above it.

    For three: 11, 22, 33, 12, 13, 23.
    """
    return [(i, i) for i in range(size)] + list(combinations(range(size), 2))


def field_symbol(
    penalty: Sequence[float], frequencies: Sequence[Float64Array], voxel_size: Sequence[float]
) -> Float64Array:
    """Return the symbol of L for scalar fields, of shape (*frequency grid)."""
    w0, w1, w2 = penalty
    laplacian = sum(_second_differences(frequencies, voxel_size))
    return np.asarray(w0 + w1 * laplacian + w2 * laplacian**2)


def velocity_symbol(
    penalty: Sequence[float], frequencies: Sequence[Float64Array], voxel_size: Sequence[float]
) -> Float64Array:
    """Return the symbol of L for velocity fields, of shape (packed d x d, *frequency grid)."""
    *sobolev, w3, w4 = penalty
    second = _second_differences(frequencies, voxel_size)
    laplacian = sum(second)
    scalar = field_symbol(sobolev, frequencies, voxel_size)

    def component(i: int, j: int) -> Float64Array:
        if i == j:
            elastic = w3 * (laplacian + second[i]) + w4 * second[i]
            return np.asarray(voxel_size[i] ** 2 * (scalar + elastic))
        product = np.sin(frequencies[i]) * np.sin(frequencies[j])
        return np.broadcast_to((w3 + w4) * product, scalar.shape)

    return np.stack([component(i, j) for i, j in packed_pairs(len(frequencies))])


def inverse_symbol(symbol: Float64Array) -> Float64Array:
    """Return the Green's function: the exact inverse of a packed symbol at every frequency.

    Where the symbol is zero (frequency zero when w0 = 0) the inverse is zero.
    """
    size = _count_rows(symbol.shape[0])
    pairs = packed_pairs(size)
    matrix = np.empty((*symbol.shape[1:], size, size))
    for packed, (i, j) in zip(symbol, pairs, strict=True):
        matrix[..., i, j] = matrix[..., j, i] = packed
    vanishes = ~symbol.any(axis=0)
    matrix[vanishes] = np.eye(size)
    inverse = np.linalg.inv(matrix)
    inverse[vanishes] = 0
    return np.stack([inverse[..., i, j] for i, j in pairs])


def angular_frequencies(shape: Sequence[int], *, half: bool) -> list[Float64Array]:
    """Return k_i along each axis, shaped to broadcast; `half` keeps k >= 0 on the last axis.

    `half` is the grid of a real transform (``rfftn``).
    """
    axes = []
    for axis, length in enumerate(shape):
        is_last = axis == len(shape) - 1
        turns = np.fft.rfftfreq(length) if half and is_last else np.fft.fftfreq(length)
        k: Float64Array = np.asarray(2 * np.pi * turns, np.float64)
        axes.append(k.reshape([-1 if other == axis else 1 for other in range(len(shape))]))
    return axes


def _second_differences(
    frequencies: Sequence[Float64Array], voxel_size: Sequence[float]
) -> list[Float64Array]:
    # 4 sin^2(k/2) rather than 2 - 2 cos k: the same, without cancellation at low frequencies.
    return [(2 * np.sin(k / 2) / h) ** 2 for k, h in zip(frequencies, voxel_size, strict=True)]


def _count_rows(n_packed: int) -> int:
    return int((np.sqrt(8 * n_packed + 1) - 1) / 2)


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
