"""Penalties as symbols: the operators L^mu, L^a and L^v of the paper in the Fourier domain.

A penalty is the list of its weights: (w0, w1, w2) for scalar fields (the mean, the appearance
basis), (w0, ..., w4) for velocity fields. With k_i the angular frequency along axis i, h_i the
voxel size, e_i = (2 - 2 cos k_i) / h_i^2 and lap = sum_i e_i, the symbols are

- scalar fields: w0 + w1 lap + w2 lap^2
- velocities, component (i, i): h_i^2 [w0 + w1 lap + w2 lap^2 + w3 (lap + e_i) + w4 e_i]
- velocities, component (i, j): (w3 + w4) sin k_i sin k_j

All are computed in float64: summed in float32, w0 would be lost in w2, and translations with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from anamorph.arrays.typing import Float64Array

FIELD_WEIGHTS = 3
VELOCITY_WEIGHTS = 5


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
