"""Derivatives with respect to shape and latents, by the chain rules of `formulas.chain_rules`.

Besides the pushed gradient g and Hessian H of an image they need D, the gradient of its appearance
by central differences. Images are flat: (channel, voxel).
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import Array, Shape, formula, kernel
from anamorph.kernels.formulas.chain_rules import (
    with_curvature,
    with_gradient,
    with_mixed_curvature,
    without_motion,
)
from anamorph.kernels.formulas.differences import central_difference
from anamorph.kernels.formulas.symmetric import packed_place

_PIECE = 512  # voxels at a time: what is computed of them stays in the first-level cache


@formula
def _differentiate(out: Array, before: Array, after: Array) -> None:
    for x in range(out.size):
        out[x] = central_difference(before[x], after[x])


@kernel
def image_gradients(images: Array, shape: Shape, out: Array) -> None:
    """Fill out (N, C, d, voxel) with central differences of images (N, C, voxel), periodic."""
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            image = images[n, c]
            stride = 1
            for axis in range(len(shape) - 1, -1, -1):
                derivative = out[n, c, axis]
                span = stride * shape[axis]  # a line along this axis, with all axes after it
                for first in range(0, image.size, span):
                    last = first + span
                    _differentiate(
                        derivative[first + stride : last - stride],
                        image[first : last - 2 * stride],
                        image[first + 2 * stride : last],
                    )
                    _differentiate(
                        derivative[first : first + stride],
                        image[last - stride : last],
                        image[first + stride % span : first + stride % span + stride],
                    )
                    before = (span - 2 * stride) % span
                    _differentiate(
                        derivative[last - stride : last],
                        image[first + before : first + before + stride],
                        image[first : first + stride],
                    )
                stride = span


@kernel
def shape_derivatives(
    gradients: Array, g: Array, h: Array, loading: float, g_v: Array, h_v: Array
) -> None:
    """Fill in derivatives with respect to the velocity: g^v = -D'g, H^v = D'HD (Algorithm 6).

    Parameters
    ----------
    gradients : (N, C, d, voxel)
        D, the derivatives of the appearance.
    g : (N, C, voxel)
    h : (N, P, voxel)
        The diagonal of H (P = C), or all of it, packed (P = C(C+1)/2).
    loading : float
        Added to the diagonal of H.
    g_v : (N, d, voxel)
    h_v : (N, d(d+1)/2, voxel)
    """
    n_images, n_channels, n_dims, n_voxels = gradients.shape
    extra = g_v.dtype.type(loading)
    weight = np.empty(_PIECE, g_v.dtype)
    for n in range(n_images):
        for first in range(0, n_voxels, _PIECE):
            last = min(first + _PIECE, n_voxels)
            g_v[n, :, first:last] = 0
            h_v[n, :, first:last] = 0
            w = weight[: last - first]
            for c in range(n_channels):
                for x in range(w.size):
                    w[x] = h[n, c, first + x] + extra
                for i in range(n_dims):
                    d_i = gradients[n, c, i, first:last]
                    _add_gradient(g_v[n, i, first:last], g[n, c, first:last], d_i)
                    _add_curvature(h_v[n, i, first:last], w, d_i, d_i)
                    for j in range(i + 1, n_dims):
                        out = h_v[n, packed_place(i, j, n_dims), first:last]
                        _add_curvature(out, w, d_i, gradients[n, c, j, first:last])
            if h.shape[1] > n_channels:
                _add_mixed_channels(gradients[n], h[n], h_v[n], first, last)


@formula
def _add_gradient(out: Array, g: Array, slope: Array) -> None:
    for x in range(out.size):
        out[x] = with_gradient(out[x], g[x], slope[x])


@formula
def _add_curvature(out: Array, weight: Array, d_i: Array, d_j: Array) -> None:
    for x in range(out.size):
        out[x] = with_curvature(out[x], weight[x], d_i[x], d_j[x])


@formula
def _add_mixed_channels(gradients: Array, h: Array, h_v: Array, first: int, last: int) -> None:
    """Add what the entries of H above its diagonal contribute."""
    n_channels, n_dims, _ = gradients.shape
    for b in range(n_channels):
        for c in range(b + 1, n_channels):
            weight = h[packed_place(b, c, n_channels), first:last]
            for i in range(n_dims):
                b_i, c_i = gradients[b, i, first:last], gradients[c, i, first:last]
                _add_mixed_curvature(h_v[i, first:last], weight, b_i, c_i, b_i, c_i)
                for j in range(i + 1, n_dims):
                    b_j, c_j = gradients[b, j, first:last], gradients[c, j, first:last]
                    out = h_v[packed_place(i, j, n_dims), first:last]
                    _add_mixed_curvature(out, weight, b_i, c_i, b_j, c_j)


@formula
def _add_mixed_curvature(
    out: Array, weight: Array, b_i: Array, c_i: Array, b_j: Array, c_j: Array
) -> None:
    for x in range(out.size):
        out[x] = with_mixed_curvature(out[x], weight[x], b_i[x], c_i[x], b_j[x], c_j[x])


@kernel
def latent_derivatives(
    appearance_basis: Array,
    shape_basis: Array,
    first_shape: int,
    gradients: Array,
    g: Array,
    h: Array,
    gradient: Array,
    hessian: Array,
) -> None:
    """Fill in derivatives with respect to the latents: B'g and B'HB (Algorithm 7).

    B = W^a - sum_i (d_i a) W^v_i is what latents do to the warped image.

    Parameters
    ----------
    appearance_basis : (Ka, C, voxel)
        Columns that belong to the first Ka latents.
    shape_basis : (Kv, d, voxel)
        Columns that belong to Kv latents, from `first_shape` on.
    gradients : (N, C, d, voxel)
    g : (N, C, voxel)
    h : (N, P, voxel)
    gradient : (N, K) float64
    hessian : (N, K, K) float64
    """
    n_images, n_channels, _, n_voxels = gradients.shape
    n_latents = gradient.shape[1]
    piece = min(n_voxels, 1024)
    room = np.empty((2, n_latents * n_channels * piece), g.dtype)
    nothing = np.zeros(piece, g.dtype)
    gradient[:] = 0
    hessian[:] = 0
    for n in range(n_images):
        for first in range(0, n_voxels, piece):
            last = min(first + piece, n_voxels)
            used = n_latents * n_channels * (last - first)
            effect = room[0, :used].reshape(n_latents, n_channels, last - first)  # B
            weighted = room[1, :used].reshape(n_latents, n_channels, last - first)  # H B
            for k in range(n_latents):
                for c in range(n_channels):
                    column = nothing[: last - first]
                    if k < appearance_basis.shape[0]:
                        column = appearance_basis[k, c, first:last]
                    if first_shape <= k < first_shape + shape_basis.shape[0]:
                        motion = shape_basis[k - first_shape]
                        _subtract_motion(column, gradients[n, c], motion, first, effect[k, c])
                    else:
                        _copy(effect[k, c], column)
                _weigh(effect[k], h[n], first, weighted[k])
            for k in range(n_latents):
                for c in range(n_channels):
                    gradient[n, k] += _dot(effect[k, c], g[n, c, first:last])
            _add_products(
                effect.reshape(n_latents, -1), weighted.reshape(n_latents, -1), hessian[n]
            )
        for k in range(n_latents):
            for m in range(k + 1, n_latents):
                hessian[n, k, m] = hessian[n, m, k]


@formula
def _subtract_motion(
    column: Array, gradients: Array, motion: Array, first: int, out: Array
) -> None:
    """Set out = column - sum_i gradients_i motion_i, for the voxels from `first` on."""
    last = first + out.size
    g_0, m_0 = gradients[0, first:last], motion[0, first:last]
    g_1, m_1 = gradients[1, first:last], motion[1, first:last]
    for x in range(out.size):
        out[x] = without_motion(without_motion(column[x], g_0[x], m_0[x]), g_1[x], m_1[x])
    if len(gradients) == 3:
        g_2, m_2 = gradients[2, first:last], motion[2, first:last]
        for x in range(out.size):
            out[x] = without_motion(out[x], g_2[x], m_2[x])


@formula
def _copy(out: Array, source: Array) -> None:
    for x in range(out.size):
        out[x] = source[x]


@formula
def _weigh(effect: Array, h: Array, first: int, weighted: Array) -> None:
    """Set weighted = H effect, (C, voxel), with H from `first` on."""
    n_channels = effect.shape[0]
    last = first + effect.shape[1]
    for c in range(n_channels):
        e, h_c, w = effect[c], h[c, first:last], weighted[c]
        for x in range(e.size):
            w[x] = h_c[x] * e[x]
    if h.shape[0] > n_channels:
        for b in range(n_channels):
            for c in range(b + 1, n_channels):
                entry = h[packed_place(b, c, n_channels), first:last]
                _add_product(weighted[b], entry, effect[c])
                _add_product(weighted[c], entry, effect[b])


@formula
def _add_product(out: Array, a: Array, b: Array) -> None:
    for x in range(out.size):
        out[x] += a[x] * b[x]


@formula
def _dot(a: Array, b: Array) -> float:
    total = a.dtype.type(0)
    for x in range(a.size):
        total += a[x] * b[x]
    return total


@formula
def _add_products(a: Array, b: Array, out: Array) -> None:
    """Add a b' to out on and below the diagonal; libraries are slow for a, b of shape (K, long).

    Two rows by two at a time: each number read is used twice. If K is odd, the last row is paired
    with itself.
    """
    n_rows = len(a)
    for k in range(0, n_rows, 2):
        k_1 = min(k + 1, n_rows - 1)
        a_0, a_1 = a[k], a[k_1]
        for m in range(0, k + 1, 2):
            m_1 = min(m + 1, n_rows - 1)
            b_0, b_1 = b[m], b[m_1]
            zero = a.dtype.type(0)
            s_00, s_01, s_10, s_11 = zero, zero, zero, zero
            for x in range(a_0.size):
                s_00 += a_0[x] * b_0[x]
                s_01 += a_0[x] * b_1[x]
                s_10 += a_1[x] * b_0[x]
                s_11 += a_1[x] * b_1[x]
            out[k, m] += s_00
            if m_1 > m and m_1 <= k:
                out[k, m_1] += s_01
            if k_1 > k:
                out[k_1, m] += s_10
                if m_1 > m:
                    out[k_1, m_1] += s_11
