"""The formulas once more, in float64 and as plainly as possible, to test the package against."""

from __future__ import annotations

from itertools import product

import numpy as np


def velocity_symbol(penalty, space, voxel_size):
    """Matrix symbol of L, (*space, d, d), on the full DFT grid."""
    d = len(space)
    w0, w1, w2, w3, w4 = penalty
    k = np.meshgrid(*[2 * np.pi * np.fft.fftfreq(n) for n in space], indexing="ij")
    e = [(2 - 2 * np.cos(k[i])) / voxel_size[i] ** 2 for i in range(d)]
    lap = sum(e)
    symbol = np.empty((*space, d, d))
    for i, j in product(range(d), repeat=2):
        if i == j:
            symbol[..., i, i] = voxel_size[i] ** 2 * (
                w0 + w1 * lap + w2 * lap**2 + w3 * (lap + e[i]) + w4 * e[i]
            )
        else:
            symbol[..., i, j] = (w3 + w4) * np.sin(k[i]) * np.sin(k[j])
    return symbol


def apply_symbol(symbol, field):
    """Multiply one field (d, *space) by a matrix symbol (*space, d, d)."""
    axes = tuple(range(1, field.ndim))
    spectrum = np.moveaxis(np.fft.fftn(field, axes=axes), 0, -1)
    return np.fft.ifftn(np.moveaxis(symbol @ spectrum[..., None], -2, 0)[..., 0], axes=axes).real


def greens_symbol(penalty, space, voxel_size):
    """Inverse of the symbol, 0 at frequency zero when w0 = 0."""
    symbol = velocity_symbol(penalty, space, voxel_size)
    zero = (0,) * len(space)
    if penalty[0] == 0:
        symbol[zero] = np.eye(len(space))
    inverse = np.linalg.inv(symbol)
    if penalty[0] == 0:
        inverse[zero] = 0
    return inverse


def corners(displacement):
    """Grid points and weights of linear interpolation: pairs of (index arrays, weights)."""
    d = len(displacement)
    space = displacement.shape[1:]
    position = np.indices(space) + displacement
    floor = np.floor(position).astype(int)
    fraction = position - floor
    for corner in product((0, 1), repeat=d):
        index = tuple((floor[i] + corner[i]) % space[i] for i in range(d))
        weight = np.prod([fraction[i] if corner[i] else 1 - fraction[i] for i in range(d)], axis=0)
        yield index, weight


def pull(image, displacement):
    """Warp one image (C, *space) by one displacement (d, *space)."""
    return sum(weight * image[(slice(None), *index)] for index, weight in corners(displacement))


def push(image, displacement):
    """Transpose of `pull`."""
    out = np.zeros_like(image)
    for index, weight in corners(displacement):
        for c in range(len(image)):
            np.add.at(out[c], index, weight * image[c])
    return out


def central_differences(image):
    """Derivatives of (..., *space) arrays of the last axes, one per axis of a (d, *space) field."""
    d = image.ndim - 1
    return np.stack(
        [(np.roll(image, -1, a) - np.roll(image, 1, a)) / 2 for a in range(1, d + 1)], axis=1
    )


def shoot(v, penalty, voxel_size, n_steps):
    """Displacement and final velocity of one field (d, *space)."""
    space = v.shape[1:]
    greens = greens_symbol(penalty, space, voxel_size)
    u = apply_symbol(velocity_symbol(penalty, space, voxel_size), v)
    displacement = -v / n_steps
    for _ in range(n_steps - 1):
        jacobian_of_v = central_differences(v)  # (i, j, *space)
        transposed = u - np.einsum("ij...,i...->j...", jacobian_of_v, u) / n_steps
        u = push(transposed, v / n_steps)
        v = apply_symbol(greens, u)
        displacement = -v / n_steps + pull(displacement, -v / n_steps)
    return displacement, v
