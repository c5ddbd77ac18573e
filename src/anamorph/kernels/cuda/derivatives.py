"""Chain rules on a GPU: the twin of `kernels.derivatives`, one thread per voxel.

Products over voxels, B'HB, are left to the library: B and HB are written out in pieces of some
voxels, each piece a small matrix product, since few but very long rows would keep a GPU idle.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide, neighbours

_ZERO, _HALF = np.float32(0), np.float32(0.5)
_PIECE = 1024  # voxels per matrix product
_MOST_BYTES = 2**31  # of B and HB at a time


@device_kernel
def _image_gradients(images, shape, out):
    n_channels, n_voxels = images.shape[1], images.shape[2]
    plane, voxel = divide(cuda.grid(1), n_voxels)
    n, c = divide(plane, n_channels)
    if n >= images.shape[0]:
        return
    rest, stride = voxel, 1
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        rest, coordinate = divide(rest, length)
        before, after = neighbours(voxel, coordinate, stride, length)
        out[n, c, axis, voxel] = _HALF * (images[n, c, after] - images[n, c, before])
        stride *= length


def image_gradients(images: Any, shape: tuple[int, ...], out: Any) -> None:
    """Fill out (N, C, d, voxel) with central differences of images (N, C, voxel), periodic."""
    _image_gradients(images.size, images, shape, out)


@device_function
def _hessian_entry(h, n, b, c, voxel, n_channels):
    """Return entry (b, c) of a packed Hessian, zero where only its diagonal is given."""
    if b == c:
        return h[n, b, voxel]
    if h.shape[1] == n_channels:
        return _ZERO
    i, j = min(b, c), max(b, c)
    place = n_channels + i * n_channels - i * (i + 1) // 2 + (j - i - 1)
    return h[n, place, voxel]


@device_kernel
def _shape_derivatives(gradients, g, h, loading, g_v, h_v):
    n_channels, n_dims, n_voxels = gradients.shape[1], gradients.shape[2], gradients.shape[3]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n >= gradients.shape[0]:
        return
    pair = n_dims
    for i in range(n_dims):
        slope = _ZERO
        for c in range(n_channels):
            slope -= g[n, c, voxel] * gradients[n, c, i, voxel]
        g_v[n, i, voxel] = slope
        for j in range(i, n_dims):
            total = _ZERO
            for b in range(n_channels):
                row = loading * gradients[n, b, j, voxel]
                for c in range(n_channels):
                    entry = _hessian_entry(h, n, b, c, voxel, n_channels)
                    row += entry * gradients[n, c, j, voxel]
                total += gradients[n, b, i, voxel] * row
            if i == j:
                h_v[n, i, voxel] = total
            else:
                h_v[n, pair, voxel] = total
                pair += 1


def shape_derivatives(gradients: Any, g: Any, h: Any, loading: float, g_v: Any, h_v: Any) -> None:
    """Fill in derivatives with respect to the velocity: g_v = -D'g, H_v = D'HD."""
    n_threads = len(gradients) * gradients.shape[3]
    _shape_derivatives(n_threads, gradients, g, h, np.float32(loading), g_v, h_v)


@device_kernel
def _write_effects(
    appearance_basis, shape_basis, first_shape, gradients, g, h, first, effect, weighted
):
    """Write B, and HB with g below it, for images from `first` on.

    effect : (n, pieces, K, C, piece); weighted : (n, pieces, K + 1, C, piece). One thread per
    image, piece, latent (g counts as one more) and voxel of the piece.
    """
    n_pieces, n_latents, n_channels, size = (
        effect.shape[1],
        effect.shape[2],
        effect.shape[3],
        effect.shape[4],
    )
    rest, x = divide(cuda.grid(1), size)
    rest, k = divide(rest, n_latents + 1)
    n, piece = divide(rest, n_pieces)
    if n >= effect.shape[0]:
        return
    voxel, image = piece * size + x, first + n
    is_inside = voxel < g.shape[2]
    for c in range(n_channels):
        if k == n_latents:
            weighted[n, piece, k, c, x] = g[image, c, voxel] if is_inside else _ZERO
            continue
        value = _ZERO
        if is_inside:
            if k < appearance_basis.shape[0]:
                value = appearance_basis[k, c, voxel]
            if first_shape <= k and k < first_shape + shape_basis.shape[0]:
                for axis in range(shape_basis.shape[1]):
                    motion = shape_basis[k - first_shape, axis, voxel]
                    value -= gradients[image, c, axis, voxel] * motion
        effect[n, piece, k, c, x] = value
    if k < n_latents:
        for b in range(n_channels):
            total = _ZERO
            if is_inside:
                for c in range(n_channels):
                    entry = _hessian_entry(h, image, b, c, voxel, n_channels)
                    total += entry * effect[n, piece, k, c, x]
            weighted[n, piece, k, b, x] = total


def latent_derivatives(
    appearance_basis: Any,
    shape_basis: Any,
    first_shape: int,
    gradients: Any,
    g: Any,
    h: Any,
    gradient: Any,
    hessian: Any,
) -> None:
    """Fill in derivatives with respect to the latents: B'g and B'HB, B = Wa - sum_i (d_i a) Wv_i.

    Shapes are those of the twin.
    """
    n_images, n_channels, n_voxels = g.shape
    n_latents = gradient.shape[1]
    size = min(n_voxels, _PIECE)
    n_pieces = -(-n_voxels // size)
    image_bytes = 4 * n_pieces * size * n_channels * (2 * n_latents + 1)
    most = max(1, _MOST_BYTES // image_bytes)
    for first in range(0, n_images, most):
        count = min(most, n_images - first)
        effect = cupy.empty((count, n_pieces, n_latents, n_channels, size), np.float32)
        weighted = cupy.empty((count, n_pieces, n_latents + 1, n_channels, size), np.float32)
        _write_effects(
            count * n_pieces * (n_latents + 1) * size,
            *(appearance_basis, shape_basis, first_shape, gradients, g, h, first),
            *(effect, weighted),
        )
        rows = effect.reshape(count, n_pieces, n_latents, -1)
        columns = weighted.reshape(count, n_pieces, n_latents + 1, -1).swapaxes(2, 3)
        products = (rows @ columns).sum(axis=1, dtype=np.float64)
        hessian[first : first + count] = (
            products[..., :n_latents] + products[..., :n_latents].swapaxes(1, 2)
        ) / 2
        gradient[first : first + count] = products[..., n_latents]
