"""Arguments of geometry: checks of fields, penalties and voxel sizes, and their float type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.devices import is_on_device
from anamorph.arrays.typing import Array


def check_voxel_size(voxel_size: ArrayLike | None, n_dims: int) -> tuple[float, ...]:
    """Return the voxel size as `n_dims` positive numbers; None means 1 along every axis."""
    if voxel_size is None:
        return (1.0,) * n_dims
    size = np.asarray(voxel_size, dtype=np.float64)
    if size.ndim != 1 or len(size) != n_dims:
        raise ValueError(f"voxel_size must hold {n_dims} numbers, one per axis, got {voxel_size!r}")
    if not np.all(np.isfinite(size) & (size > 0)):
        raise ValueError(f"voxel_size must be positive and finite, got {voxel_size!r}")
    return tuple(size.tolist())


def check_penalty(
    penalty: Sequence[float] | ArrayLike, n_weights: int, name: str = "penalty"
) -> tuple[float, ...]:
    """Return a penalty as `n_weights` finite, non-negative numbers that are not all zero."""
    weights = np.asarray(penalty, dtype=np.float64)
    if weights.shape != (n_weights,):
        raise ValueError(f"{name} must hold {n_weights} numbers, got {penalty!r}")
    if not np.all(np.isfinite(weights)):
        raise ValueError(f"{name} must be finite, got {penalty!r}")
    if np.any(weights < 0):
        raise ValueError(f"{name} must not be negative, got {penalty!r}")
    if not np.any(weights):
        raise ValueError(f"{name} must have a positive weight, got {penalty!r}")
    return tuple(weights.tolist())


def check_vector_field(field: ArrayLike, name: str, n_dims: int | None = None) -> tuple[Array, int]:
    """Return a velocity or displacement field (..., d, *space) as a float array, and d.

    The component axis has as many entries as there are spatial axes after it: 2 or 3. Where a
    shape can be read both ways, as in (3, 2, ny, nx), it is a batch of 2D fields unless `n_dims`
    says otherwise.
    """
    array = as_float(field, name)
    for d in (2, 3) if n_dims is None else (n_dims,):
        if array.ndim > d and array.shape[-d - 1] == d and 0 not in array.shape[-d:]:
            return array, d
    raise ValueError(
        f"{name} must have shape (..., 2, ny, nx) or (..., 3, nz, ny, nx), got {array.shape}"
    )


def check_image_and_displacement(
    image: ArrayLike, displacement: ArrayLike
) -> tuple[Array, Array, int]:
    """Return image (..., C, *space), displacement (..., d, *space) of one dtype, and d."""
    warp, d = check_vector_field(displacement, "displacement")
    array = as_float(image, "image")
    space = warp.shape[-d:]
    if array.ndim < d + 1 or array.shape[-d:] != space:
        raise ValueError(
            f"image must have shape (..., channels, {', '.join(map(str, space))}) to match the "
            f"displacement, got {array.shape}"
        )
    dtype = np.result_type(array, warp)
    return array.astype(dtype, copy=False), warp.astype(dtype, copy=False), d


def as_float(values: ArrayLike, name: str) -> Array:
    """Return values as float64 if they are, else as float32; on a GPU all are float32."""
    if is_on_device(values):
        return cast(Array, values).astype(np.float32, copy=False)
    array = np.asarray(values)
    if array.dtype == np.float64:
        return array
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    return array.astype(np.float32, copy=False)
