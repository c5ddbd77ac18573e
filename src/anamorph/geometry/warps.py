"""Warps psi = id + displacement: pull, push, compose, and Jacobians.

Pull is a(psi) of the paper; push, its transpose, is Psi' of Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.devices import array_namespace, is_on_device, kernels_for
from anamorph.arrays.typing import Array
from anamorph.geometry.fields import check_image_and_displacement, check_vector_field
from anamorph.kernels.cpu.volumes import pull_volumes, push_volumes
from anamorph.kernels.cpu.warps import (
    coordinates_of_voxels,
    pull_voxels,
    push_voxels,
    slope_voxels,
)
from anamorph.kernels.threads import n_threads, run_parallel, slabs

# Images are warped in parts that stay in a processor's cache.
_PART_BYTES = 2**20

# By the number of axes.
_PULL = {2: pull_voxels, 3: pull_volumes}
_PUSH = {2: push_voxels, 3: push_volumes}


def pull(image: ArrayLike, displacement: ArrayLike) -> Array:
    """Return images warped by psi: image(x + displacement(x)), interpolated linearly.

    Parameters
    ----------
    image : array of shape (..., C, *space)
        Images of C channels on a periodic grid of d = 2 or 3 axes.
    displacement : array of shape (..., d, *space)
        Displacements in voxels. Leading axes broadcast against those of the images.

    Returns
    -------
    array of shape (..., C, *space)
        float32, or float64 if one of the inputs is.
    """
    images, warps, shape = _broadcast(image, displacement)
    return pull_batch(images, warps).reshape(shape)


def push(image: ArrayLike, displacement: ArrayLike) -> Array:
    """Return images pushed along psi: the exact transpose of `pull`.

    Each voxel x adds its value, shared out linearly, to the grid points around
    x + displacement(x). Totals are conserved.

    Parameters
    ----------
    image : array of shape (..., C, *space)
    displacement : array of shape (..., d, *space)
        As for `pull`.

    Returns
    -------
    array of shape (..., C, *space)
    """
    images, warps, shape = _broadcast(image, displacement)
    return push_batch(images, warps).reshape(shape)


def pull_batch(images: Array, warps: Array) -> Array:
    """Return images (N, C, *space) pulled by displacements (N, d, *space), all contiguous."""
    out, kernel = np.empty_like(images), _PULL[warps.shape[1]]
    if is_on_device(images):
        _run_on_device("pull_voxels", images, warps, out)
    elif len(images) >= n_threads():
        parts = [slice(*bounds) for bounds in _split_images(images)]
        run_parallel(lambda part: _warp(kernel, images[part], warps[part], out[part]), parts)
    else:  # threads share the voxels of few images
        bounds = slabs(_count_voxels(images), n_threads())
        run_parallel(lambda slab: _warp(kernel, images, warps, out, slab), bounds)
    return out


def push_batch(images: Array, warps: Array) -> Array:
    """Return images (N, C, *space) pushed by displacements (N, d, *space), all contiguous."""
    n_images, n_channels = images.shape[:2]
    out = np.empty_like(images)
    if is_on_device(images):
        _run_on_device("push_voxels", images, warps, out)
        return out
    if n_images * n_channels < n_threads():
        return _push_slabs(images, warps)
    if n_images >= n_threads():
        pieces = [(slice(*bounds), slice(None)) for bounds in _split_images(images)]
    else:
        pieces = [
            (slice(n, n + 1), slice(c, c + 1)) for n in range(n_images) for c in range(n_channels)
        ]

    def push_piece(piece: tuple[slice, slice]) -> None:
        _warp(_PUSH[warps.shape[1]], images[piece], warps[piece[0]], out[piece])

    run_parallel(push_piece, pieces)
    return out


def slope_batch(images: Array, weights: Array, warps: Array) -> Array:
    """Return the derivative of sum(weights * pull(images, warps)) with respect to the warps.

    That is sum_c weights_c grad(image_c)(psi), (N, d, *space), where grad is the derivative of
    linear interpolation as it is: constant along an axis within a cell, with jumps between cells.

    Parameters
    ----------
    images, weights : (N, C, *space)
    warps : (N, d, *space)
        Displacements; all contiguous.
    """
    out, n_images, space = np.empty_like(warps), len(images), images.shape[2:]
    flat = [fields.reshape(*fields.shape[:2], -1) for fields in (images, weights, warps, out)]
    if is_on_device(images):
        kernels_for(images, "anamorph.kernels.cpu.warps").slope_voxels(*flat, space)
        return out
    flat.insert(3, coordinates_of_voxels(space, images.dtype))
    if n_images >= n_threads():
        pieces = [(slice(*bounds), (0, flat[0].shape[2])) for bounds in _split_images(images)]
    else:
        pieces = [(slice(None), slab) for slab in slabs(flat[0].shape[2], n_threads())]

    def slope_piece(piece: tuple[slice, tuple[int, int]]) -> None:
        some, slab = piece
        image, weight, warp, coordinates, slopes = flat
        slope_voxels(image[some], weight[some], warp[some], coordinates, slopes[some], space, *slab)

    run_parallel(slope_piece, pieces)
    return out


def _push_slabs(images: Array, warps: Array) -> Array:
    """Push few images: threads share their voxels."""

    def push_slab(slab: tuple[int, int]) -> Array:
        # Each slab has images of its own, since slabs push onto each other's voxels.
        own = np.empty_like(images)
        _warp(_PUSH[warps.shape[1]], images, warps, own, slab)
        return own

    # No more slabs than axes: they take no more memory than the displacements.
    n_slabs = min(n_threads(), warps.shape[1])
    total, *others = run_parallel(push_slab, slabs(_count_voxels(images), n_slabs))
    for own in others:
        total += own
    return total


def _run_on_device(name: str, images: Array, warps: Array, out: Array) -> None:
    """Run a kernel of `kernels.cuda.warps`."""
    kernel = getattr(kernels_for(images, "anamorph.kernels.cpu.warps"), name)
    n_images, n_voxels = len(images), _count_voxels(images)
    flat = [array.reshape(n_images, -1, n_voxels) for array in (images, warps, out)]
    kernel(*flat, images.shape[2:])


def _warp(
    kernel: Callable[..., None],
    images: Array,
    warps: Array,
    out: Array,
    slab: tuple[int, int] | None = None,
) -> None:
    """Run a kernel of `kernels` for some images, and perhaps for some of their voxels."""
    space, bounds = images.shape[2:], slab or (0, _count_voxels(images))
    flat = [fields.reshape(*fields.shape[:2], -1) for fields in (images, warps, out)]
    if len(space) == 2:
        flat.insert(2, coordinates_of_voxels(space, images.dtype))
    kernel(*flat, space, *bounds)


def _count_voxels(images: Array) -> int:
    return math.prod(images.shape[2:])


def compose(outer: ArrayLike, inner: ArrayLike) -> Array:
    """Return the displacement of psi_outer o psi_inner, in voxels.

    Parameters
    ----------
    outer, inner : arrays of shape (..., d, *space)
        Displacements of the two warps; ``pull(pull(image, outer), inner)`` is approximately
        ``pull(image, compose(outer, inner))``.

    Returns
    -------
    array of shape (..., d, *space)
        In voxels.
    """
    inner_warp, _ = check_vector_field(inner, "inner")
    return inner_warp + pull(outer, inner_warp)


def jacobian_determinant(displacement: ArrayLike) -> Array:
    """Return |D psi|, the factor by which psi = id + displacement changes volumes.

    Parameters
    ----------
    displacement : array of shape (..., d, *space)
        In voxels; derivatives are central differences on the periodic grid.

    Returns
    -------
    array of shape (..., *space)
        Positive where psi preserves orientation, 1 where it preserves volume.
    """
    warp, d = check_vector_field(displacement, "displacement")
    rows = np.moveaxis(_differentiate_warp(warp, d), (-d - 2, -d - 1), (0, 1))
    determinant: Array
    if d == 2:
        determinant = rows[0, 0] * rows[1, 1] - rows[0, 1] * rows[1, 0]
    else:
        determinant = (rows[0] * np.cross(rows[1], rows[2], axis=0)).sum(axis=0)
    return determinant


def differentiate(image: Array, n_dims: int) -> Array:
    """Return central differences of images (..., *space) along each axis, (..., d, *space)."""
    derivatives = [
        (np.roll(image, -1, axis) - np.roll(image, 1, axis)) / 2 for axis in range(-n_dims, 0)
    ]
    return np.stack(derivatives, axis=-n_dims - 1)


def _differentiate_warp(displacement: Array, n_dims: int) -> Array:
    """Return D psi, (..., d, d, *space): entry (i, j) is the derivative of component i along j."""
    xp = array_namespace(displacement)
    identity = xp.eye(n_dims, dtype=displacement.dtype).reshape(n_dims, n_dims, *(1,) * n_dims)
    derivative: Array = identity + differentiate(displacement, n_dims)
    return derivative


def _broadcast(image: ArrayLike, displacement: ArrayLike) -> tuple[Array, Array, tuple[int, ...]]:
    """Return images (N, C, *space), displacements (N, d, *space) and the shape of the result."""
    images, warps, d = check_image_and_displacement(image, displacement)
    contiguous = array_namespace(images).ascontiguousarray
    if images.ndim == warps.ndim == d + 2 and len(images) == len(warps):
        return contiguous(images), contiguous(warps), images.shape
    try:
        lead = np.broadcast_shapes(images.shape[: -d - 1], warps.shape[: -d - 1])
    except ValueError:
        raise ValueError(
            f"leading axes of image {images.shape} and displacement {warps.shape} do not match"
        ) from None
    shape = (*lead, *images.shape[-d - 1 :])
    images = np.broadcast_to(images, shape)
    warps = np.broadcast_to(warps, (*lead, *warps.shape[-d - 1 :]))
    return (
        contiguous(images.reshape(-1, *images.shape[-d - 1 :])),
        contiguous(warps.reshape(-1, *warps.shape[-d - 1 :])),
        shape,
    )


def _split_images(images: Array) -> list[tuple[int, int]]:
    images_per_part = max(1, _PART_BYTES // images[0].nbytes)
    return slabs(len(images), max(n_threads(), -(-len(images) // images_per_part)))
