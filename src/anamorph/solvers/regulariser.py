"""The penalty L on grids of any spacing: its symbol, its diagonal, its matrix.

L is that of `anamorph.geometry.penalties`. On a coarse grid differences are divided by the coarse
spacing H_i, but velocities stay in voxels of the finest grid, of size h_i: component (i, j) of the
symbol for spacing H is multiplied by (h_i h_j) / (H_i H_j).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anamorph.geometry.penalties import (
    VELOCITY_WEIGHTS,
    angular_frequencies,
    field_symbol,
    packed_pairs,
    velocity_symbol,
)

# Along one axis the symbol is a trigonometric polynomial of degree 2: its mean follows from a few
# frequencies, and its largest value is seen closely enough.
_FREQUENCIES = 8


@dataclass(frozen=True)
class Regulariser:
    """L for any grid: the weights of the penalty (3 or 5), and the finest voxel size."""

    penalty: tuple[float, ...]
    voxel_size: tuple[float, ...]
    n_components: int

    @property
    def is_for_velocities(self) -> bool:
        """Whether components are those of a velocity, in voxels and coupled by w3 and w4."""
        return len(self.penalty) == VELOCITY_WEIGHTS

    def units(self, spacing: Sequence[float]) -> NDArray[np.float64]:
        """Return h_i / H_i for each component of a velocity."""
        return np.divide(self.voxel_size, spacing)

    def symbol(self, shape: Sequence[int], spacing: Sequence[float]) -> NDArray[np.float64]:
        """Return the symbol of L as matrices: (components, components, *shape)."""
        n, frequencies = self.n_components, angular_frequencies(shape, half=False)
        if not self.is_for_velocities:
            return np.multiply.outer(np.eye(n), field_symbol(self.penalty, frequencies, spacing))
        packed = velocity_symbol(self.penalty, frequencies, spacing)
        units = self.units(spacing)
        matrix = np.empty((n, n, *packed.shape[1:]))
        for component, (i, j) in zip(packed, packed_pairs(n), strict=True):
            matrix[i, j] = matrix[j, i] = units[i] * units[j] * component
        return matrix


@lru_cache(maxsize=64)
def evaluate_diagonal(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the diagonal of L, one number per component: the mean of its symbol."""
    symbol = _symbol_at_few_frequencies(regulariser, shape, spacing)
    return np.diagonal(symbol.mean(axis=tuple(range(2, symbol.ndim)))).copy()


@lru_cache(maxsize=64)
def bound_rough_spectrum(
    regulariser: Regulariser,
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    coarse_shape: tuple[int, ...],
) -> tuple[float, float]:
    """Return bounds on the eigenvalues of D^-1 L for fields that a coarser grid cannot show.

    D is the diagonal of L. The upper bound holds for all fields, and is at least 1.
    """
    symbol = _symbol_at_few_frequencies(regulariser, shape, spacing)
    root = np.sqrt(evaluate_diagonal(regulariser, shape, spacing)).reshape(-1, *(1 for _ in shape))
    scaled = symbol / root / root[:, None]
    frequencies = angular_frequencies(symbol.shape[2:], half=False)
    is_rough = np.zeros(symbol.shape[2:], np.bool_)
    for k, length, coarse_length in zip(frequencies, shape, coarse_shape, strict=True):
        is_rough |= (length != coarse_length) & (abs(k) >= np.pi / 2)
    smallest = np.linalg.eigvalsh(np.moveaxis(scaled[:, :, is_rough], -1, 0)).min()
    return float(smallest), max(1.0, float(abs(scaled).sum(axis=0).max()))


@lru_cache(maxsize=64)
def build_matrix(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return L as a matrix: (components, voxels, components, voxels)."""
    symbol = regulariser.symbol(shape, spacing)
    response = np.fft.ifftn(symbol, axes=range(2, symbol.ndim)).real
    voxels = np.indices(shape).reshape(len(shape), -1)
    apart = (voxels[:, :, None] - voxels[:, None, :]) % np.reshape(shape, (-1, 1, 1))
    return np.moveaxis(response[(slice(None), slice(None), *apart)], 1, 2)


def _symbol_at_few_frequencies(
    regulariser: Regulariser, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> NDArray[np.float64]:
    return regulariser.symbol([min(length, _FREQUENCIES) for length in shape], spacing)
