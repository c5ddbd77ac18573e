"""Derivatives with respect to shape and latents on a GPU, one thread per voxel.

CuPy sums over voxels, B'HB: kernels write B and HB in pieces of some voxels, each piece a small
matrix product, since few but very long rows would keep a GPU idle.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel, flattened
from anamorph.kernels.cuda.places import (
    added,
    as_divisor,
    divided,
    divided_quickly,
    find_neighbours,
    multiplied,
    read_length,
    shifted,
)
from anamorph.kernels.formulas.chain_rules import (
    with_curvature,
    with_gradient,
    with_mixed_curvature,
    without_motion,
)
from anamorph.kernels.formulas.differences import central_difference
from anamorph.kernels.formulas.symmetric import packed_place

_ZERO = np.float32(0)
_PIECE = 1024  # voxels per matrix product
_MOST_BYTES = 2**31  # of B and HB at a time
_LATENTS_PER_THREAD = 10  # share what is read of the image


@device_kernel
def _image_gradients(images, shape, out):
    n_channels, n_voxels = images.shape[1], images.shape[2]
    plane, voxel = divided(cuda.grid(1), n_voxels)
    n, c = divided(plane, n_channels)
    if n >= images.shape[0]:
        return
    rest, stride = voxel, 1
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        rest, coordinate = divided(rest, length)
        before, after = find_neighbours(voxel, coordinate, stride, length)
        out[n, c, axis, voxel] = central_difference(images[n, c, before], images[n, c, after])
        stride *= length


def image_gradients(images: Any, shape: tuple[int, ...], out: Any) -> None:
    """Fill out (N, C, d, voxel) with central differences of images (N, C, voxel), periodic."""
    _image_gradients(images.size, images, shape, out)


@device_function
def _hessian_entry(h, b, c, voxel, n_channels, n_voxels, is_full):
    """Return entry (b, c) of the packed Hessian of an image; it may be diagonal."""
    if b != c and not is_full:
        return _ZERO
    return h[shifted(multiplied(packed_place(b, c, n_channels), n_voxels), voxel)]


@device_kernel
def _shape_derivatives(gradients, g, h, is_full, loading, g_v, h_v, channels, axes, n_voxels):
    """One thread per image and voxel; images have one row each.

    channels, axes : tuples, whose lengths the compiler knows, which lets it unroll loops
    """
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= g.shape[0]:
        return
    n_channels, n_axes, size = len(channels), len(axes), read_length(n_voxels)
    image, own_g, own_h, slopes, products = gradients[n], g[n], h[n], g_v[n], h_v[n]
    for i in range(n_axes):
        slope = _ZERO
        for c in range(n_channels):
            along_i = image[shifted(multiplied(c * n_axes + i, size), voxel)]
            slope = with_gradient(slope, own_g[shifted(multiplied(c, size), voxel)], along_i)
        slopes[shifted(multiplied(i, size), voxel)] = slope
        for j in range(i, n_axes):
            total = _ZERO
            for b in range(n_channels):
                b_i = image[shifted(multiplied(b * n_axes + i, size), voxel)]
                b_j = image[shifted(multiplied(b * n_axes + j, size), voxel)]
                for c in range(n_channels):
                    if b == c:
                        entry = own_h[shifted(multiplied(b, size), voxel)] + loading
                        total = with_curvature(total, entry, b_i, b_j)
                    elif b < c and is_full:
                        c_i = image[shifted(multiplied(c * n_axes + i, size), voxel)]
                        c_j = image[shifted(multiplied(c * n_axes + j, size), voxel)]
                        place = multiplied(packed_place(b, c, n_channels), size)
                        entry = own_h[shifted(place, voxel)]
                        total = with_mixed_curvature(total, entry, b_i, c_i, b_j, c_j)
            products[shifted(multiplied(packed_place(i, j, n_axes), size), voxel)] = total


def shape_derivatives(gradients: Any, g: Any, h: Any, loading: float, g_v: Any, h_v: Any) -> None:
    """Fill in derivatives with respect to the velocity: g^v = -D'g, H^v = D'HD (Algorithm 6)."""
    n_images, n_channels, n_axes, n_voxels = gradients.shape
    gradients, g, packed, g_v, h_v = (
        flattened(array).reshape(n_images, -1) for array in (gradients, g, h, g_v, h_v)
    )
    _shape_derivatives(
        n_images * n_voxels,
        *(gradients, g, packed, h.shape[1] > n_channels, np.float32(loading), g_v, h_v),
        *(tuple(range(n_channels)), tuple(range(n_axes)), as_divisor(n_voxels)),
    )


@device_function
def _effect(k, c, bases, bounds, gradients, voxel, n_voxels, n_channels, n_axes):
    """Return an entry of B: what latent k does to channel c of a voxel."""
    appearance_basis, shape_basis = bases
    n_appearance, first_shape, end_of_shape = bounds
    value = _ZERO
    if k < n_appearance:
        channel = added(multiplied(k, n_channels), c)
        value = appearance_basis[shifted(multiplied(channel, n_voxels), voxel)]
    if first_shape <= k and k < end_of_shape:
        for axis in range(n_axes):
            motion = added(multiplied(added(k, -first_shape), n_axes), axis)
            slope = gradients[shifted(multiplied(c * n_axes + axis, n_voxels), voxel)]
            moved = shape_basis[shifted(multiplied(motion, n_voxels), voxel)]
            value = without_motion(value, slope, moved)
    return value


@device_kernel
def _write_effects(
    appearance_basis, shape_basis, bounds, n_latents, gradients, g, h, is_full, first, effect,
    weighted, channels, axes, n_voxels, size, n_pieces, n_groups,
):  # fmt: skip
    """Write B, and HB with g below it, for images from `first` on.

    effect : (n, pieces, K, C, piece); weighted : (n, pieces, K + 1, C, piece), both flat, as the
    bases are; images have one row each. One thread per image, piece, group of latents and voxel
    of the piece. Divisors: size, n_pieces, n_groups; of `channels` and `axes` the lengths count.
    """
    rest, x = divided_quickly(cuda.grid(1), size)
    rest, group = divided_quickly(rest, n_groups)
    n, piece = divided_quickly(rest, n_pieces)
    n_channels, length = len(channels), read_length(size)
    stride = multiplied(n_channels, length)
    start = multiplied(rest, multiplied(n_latents, stride))
    if shifted(start, 0) >= effect.size:
        return
    weighted_start = added(start, multiplied(rest, stride))
    voxel = added(multiplied(piece, length), x)
    is_inside = voxel < n_voxels
    voxel = voxel if is_inside else np.int32(0)  # any that exists
    image, own_h, bases = gradients[first + n], h[first + n], (appearance_basis, shape_basis)
    begin = multiplied(group, _LATENTS_PER_THREAD)
    for k in range(begin, min(added(begin, _LATENTS_PER_THREAD), n_latents)):
        here = added(added(start, multiplied(k, stride)), x)
        there = added(added(weighted_start, multiplied(k, stride)), x)
        # Three channels stay in registers: what has just been written is slow to read.
        value_0, value_1, value_2 = _ZERO, _ZERO, _ZERO
        for c in range(n_channels):
            value = _effect(k, c, bases, bounds, image, voxel, n_voxels, n_channels, len(axes))
            value = value if is_inside else _ZERO
            effect[shifted(here, multiplied(c, length))] = value
            value_0 = value if c == 0 else value_0
            value_1 = value if c == 1 else value_1
            value_2 = value if c == 2 else value_2
        for b in range(n_channels):
            total = _ZERO
            for c in range(n_channels):
                value = value_0 if c == 0 else (value_1 if c == 1 else value_2)
                if c > 2:
                    value = effect[shifted(here, multiplied(c, length))]
                total += value * _hessian_entry(own_h, b, c, voxel, n_channels, n_voxels, is_full)
            weighted[shifted(there, multiplied(b, length))] = total
    if group == 0:
        there = added(added(weighted_start, multiplied(n_latents, stride)), x)
        for c in range(n_channels):
            slope = g[first + n, shifted(multiplied(c, n_voxels), voxel)]
            weighted[shifted(there, multiplied(c, length))] = slope if is_inside else _ZERO


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
    """Fill in derivatives with respect to the latents: B'g and B'HB (Algorithm 7)."""
    n_images, n_channels, n_voxels = g.shape
    n_latents = gradient.shape[1]
    size = min(n_voxels, _PIECE)
    n_pieces, n_groups = -(-n_voxels // size), -(-n_latents // _LATENTS_PER_THREAD)
    bounds = len(appearance_basis), first_shape, first_shape + len(shape_basis)
    by_image = [flattened(array).reshape(n_images, -1) for array in (gradients, g, h)]
    image_bytes = 4 * n_pieces * size * n_channels * (2 * n_latents + 1)
    most = max(1, _MOST_BYTES // image_bytes)
    for first in range(0, n_images, most):
        count = min(most, n_images - first)
        effect = cupy.empty((count, n_pieces, n_latents, n_channels, size), np.float32)
        weighted = cupy.empty((count, n_pieces, n_latents + 1, n_channels, size), np.float32)
        _write_effects(
            count * n_pieces * n_groups * size,
            *(flattened(appearance_basis), flattened(shape_basis), bounds, n_latents),
            *(*by_image, h.shape[1] > n_channels, first, flattened(effect), flattened(weighted)),
            *(tuple(range(n_channels)), tuple(range(gradients.shape[2])), n_voxels),
            *map(as_divisor, (size, n_pieces, n_groups)),
        )
        rows = effect.reshape(count, n_pieces, n_latents, -1)
        columns = weighted.reshape(count, n_pieces, n_latents + 1, -1).swapaxes(2, 3)
        products = (rows @ columns).sum(axis=1, dtype=np.float64)
        hessian[first : first + count] = (
            products[..., :n_latents] + products[..., :n_latents].swapaxes(1, 2)
        ) / 2
        gradient[first : first + count] = products[..., n_latents]
