"""A batch of systems (H_k + weight_k L) x_k = g_k: its checks, and how it is split into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.namespaces import free_bytes, is_on_device
from anamorph.geometry.fields import as_float
from anamorph.kernels.threads import n_threads, slabs
from anamorph.solvers.layout import Field
from anamorph.solvers.regulariser import Regulariser

# A block of systems has at most so many voxels, which bounds memory...
_LARGEST_BLOCK = 1 << 17
# ... and at least so many if there are: below, calling the kernels costs more than running them.
_SMALLEST_BLOCK = 1 << 13
# On a GPU as many as possible, within this share of its memory (as a divisor): launching kernels
# takes the same time for one system as for many.
_SHARE_OF_DEVICE = 4
_BYTES_PER_VOXEL = 256
_MOST_NUMBERS = 1 << 30  # of Hessians on a GPU, whose kernels count the padded ones in 32 bits
# Negative entries below this, relative to the largest, are rounding errors of the caller.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Systems:
    """Checked arrays of one type, leading axes merged into k.

    Attributes
    ----------
    hessian : ndarray, shape (k, P, *space)
    gradient : ndarray, shape (k, C, *space)
    start : ndarray, shape (k, C, *space), or None for 0
    weight : ndarray, shape (k,)
    """

    hessian: Field
    gradient: Field
    start: Field | None
    weight: NDArray[np.float64]

    def split_into_blocks(self) -> list[slice]:
        """Return which systems to solve together."""
        k = self.gradient.shape[0]
        n_voxels = k * prod(self.gradient.shape[2:])
        if is_on_device(self.gradient):
            most = free_bytes() // _SHARE_OF_DEVICE // _BYTES_PER_VOXEL
            most = min(most, _MOST_NUMBERS // self.hessian.shape[1])
            return [slice(*slab) for slab in slabs(k, -(-n_voxels // max(1, most)))]
        count = max(n_voxels // _LARGEST_BLOCK, min(n_threads(), n_voxels // _SMALLEST_BLOCK))
        return [slice(*slab) for slab in slabs(k, count)] if k else []


def check_systems(
    hessian: ArrayLike,
    gradient: Field,
    regulariser: Regulariser,
    weight: ArrayLike,
    start: ArrayLike | None,
) -> Systems:
    """Return the systems, or raise a ValueError that says what is wrong with them.

    The last axes of `gradient` have been checked: (..., C, *space).
    """
    n_dims, c = len(regulariser.voxel_size), regulariser.n_components
    leading, space = gradient.shape[: -n_dims - 1], gradient.shape[-n_dims:]
    if 0 in (c, *space):
        raise ValueError(f"gradient must not be empty, got shape {gradient.shape}")
    matrices = as_float(hessian, "hessian")
    accepted = [(*leading, p, *space) for p in sorted({c, c * (c + 1) // 2})]
    if matrices.shape not in accepted:
        shapes = " or ".join(map(str, accepted))
        raise ValueError(
            f"hessian must have shape {shapes} to match the gradient, got {matrices.shape}"
        )
    dtype = np.result_type(matrices, gradient)

    def merged(array: Field, name: str) -> Field:
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity in it")
        return array.reshape(-1, *array.shape[-n_dims - 1 :]).astype(dtype, copy=False)

    systems = Systems(
        merged(matrices, "hessian"),
        merged(gradient, "gradient"),
        None if start is None else merged(_check_start(start, gradient), "start"),
        _check_weight(weight, leading),
    )
    _check_definite(systems.hessian, regulariser)
    return systems


def _check_start(start: ArrayLike, gradient: Field) -> Field:
    array = as_float(start, "start")
    if array.shape != gradient.shape:
        raise ValueError(
            f"start must have the shape of the gradient, {gradient.shape}, got {array.shape}"
        )
    return array


def _check_weight(weight: ArrayLike, leading: tuple[int, ...]) -> NDArray[np.float64]:
    weights = np.asarray(weight, dtype=np.float64)
    if weights.shape not in ((), leading):
        raise ValueError(
            f"weight must be a number or have the leading shape {leading} of the gradient, "
            f"got shape {weights.shape}"
        )
    if not np.all(np.isfinite(weights) & (weights > 0)):
        raise ValueError(f"weight must be positive and finite, got {weight!r}")
    return np.broadcast_to(weights, leading).reshape(-1)


def _check_definite(hessian: Field, regulariser: Regulariser) -> None:
    diagonal = hessian[:, : regulariser.n_components]
    # Row by row first: a GPU is slow to look through everything for one number.
    largest, smallest = diagonal.max(axis=-1), diagonal.min(axis=-1)
    if diagonal.size and smallest.min() < -_ROUNDING * largest.max():
        raise ValueError(
            "hessian must be positive semi-definite at every voxel, "
            f"got {smallest.min():.3g} on its diagonal"
        )
    is_zero = ~largest.any(axis=tuple(range(1, largest.ndim)))
    if regulariser.penalty[0] == 0 and is_zero.any():
        raise ValueError(
            "the system is singular: with w0 = 0 in the penalty, hessian must not be zero "
            "everywhere; give w0 a positive value"
        )
