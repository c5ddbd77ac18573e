"""Systems to be solved, and (H + weight L) x once more, in float64 by Fourier transforms."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tests import reference


def pairs(size, n_packed):
    """Order of packed symmetric matrices, or of diagonal ones."""
    return ([(i, i) for i in range(size)] + list(combinations(range(size), 2)))[:n_packed]


def symbol(penalty, space, voxel_size, n_components):
    """Matrix symbol of L, (*space, C, C), for three weights or five."""
    if len(penalty) == 5:
        return reference.velocity_symbol(penalty, space, voxel_size)
    k = np.meshgrid(*[2 * np.pi * np.fft.fftfreq(n) for n in space], indexing="ij")
    lap = sum((2 - 2 * np.cos(k_i)) / h**2 for k_i, h in zip(k, voxel_size, strict=True))
    w0, w1, w2 = penalty
    return (w0 + w1 * lap + w2 * lap**2)[..., None, None] * np.eye(n_components)


def product(hessian, x, penalty, voxel_size, weight=1.0):
    """(H + weight L) x for one system: hessian (P, *space), x (C, *space)."""
    x = np.asarray(x, np.float64)
    result = weight * reference.apply_symbol(symbol(penalty, x.shape[1:], voxel_size, len(x)), x)
    for field, (i, j) in zip(hessian.astype(np.float64), pairs(len(x), len(hessian)), strict=True):
        result[i] += field * x[j]
        if i != j:
            result[j] += field * x[i]
    return result


def matrix(hessian, shape, penalty, voxel_size, weight=1.0):
    """H + weight L as a dense matrix; shape is (C, *space)."""
    columns = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    return np.stack(
        [product(hessian, column, penalty, voxel_size, weight).ravel() for column in columns]
    )


def errors(x, exact, hessian, penalty, voxel_size, weight=1.0):
    """Relative residual, and relative error in the energy norm."""
    a_exact = product(hessian, exact, penalty, voxel_size, weight)
    a_error = product(hessian, x - exact, penalty, voxel_size, weight)
    energy = np.sum((x - exact) * a_error) / np.sum(exact * a_exact)
    return np.linalg.norm(a_error) / np.linalg.norm(a_exact), np.sqrt(max(energy, 0))


def random_hessian(rng, n_components, space, *, rank=1, scale=1.0):
    """Positive semi-definite matrices of low rank at every voxel, zero in half of the grid."""
    factors = rng.standard_normal((rank, n_components, *space))
    packed = np.stack(
        [
            (factors[:, i] * factors[:, j]).sum(axis=0)
            for i, j in pairs(n_components, n_components * (n_components + 1) // 2)
        ]
    )
    packed[:, : space[0] // 2] = 0
    return scale * packed


def categorical_hessian(rng, n_classes, space):
    """diag(s) - s s' for random class probabilities: constants over classes are free."""
    s = rng.random((n_classes, *space)) ** 3
    s /= s.sum(axis=0)
    order = pairs(n_classes, n_classes * (n_classes + 1) // 2)
    return np.stack([s[i] * (i == j) - s[i] * s[j] for i, j in order])
