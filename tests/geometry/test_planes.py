"""Small planes by matrices: the same as by Fourier transforms."""

import numpy as np
import pytest

from anamorph.geometry import shooting, velocity
from anamorph.geometry.operators import apply_symbol, packed_symbol
from anamorph.geometry.planes import apply_real_symbol, real_fourier_matrix

PENALTY = (0.002, 0.02, 2.0, 0.2, 0.2)
FLOAT64 = np.dtype(np.float64)
planes = pytest.mark.parametrize("space", [(28, 28), (27, 32), (1, 9), (2, 5)])


@pytest.mark.parametrize("length", [1, 2, 3, 16, 27])
def test_the_basis_is_orthonormal(length):
    matrix = real_fourier_matrix(length, FLOAT64)
    assert np.allclose(matrix @ matrix.T, np.eye(length), atol=1e-13)


@planes
@pytest.mark.parametrize("inverse", [False, True])
def test_matrices_and_transforms_multiply_by_the_same_symbol(space, inverse):
    fields = np.random.default_rng(0).standard_normal((2, *space, 8))
    voxel_size = (1.0, 1.7)
    whole, half = (
        packed_symbol(PENALTY, space, voxel_size, FLOAT64, inverse=inverse, half=half)
        for half in (False, True)
    )
    expected = apply_symbol(fields[None], half, workers=1)[0]
    scratch = np.empty((2, *fields.shape))
    result = apply_real_symbol(fields, whole, scratch)
    assert np.allclose(result, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    total = np.arange(16.0).reshape(2, 8)
    assert np.allclose(apply_real_symbol(fields, whole, scratch, total).sum(axis=(1, 2)), total)


@planes
def test_shooting_by_matrices_is_shooting_by_transforms(space, monkeypatch):
    noise = np.random.default_rng(0).standard_normal((16, 2, *space))
    v = velocity(noise - noise.mean(axis=(2, 3), keepdims=True), PENALTY)
    by_matrices = shooting.shoot(v, PENALTY)
    monkeypatch.setattr(shooting, "is_small_plane", lambda *_: False)
    assert np.abs(by_matrices - shooting.shoot(v, PENALTY)).max() < 1e-12 * (1 + np.abs(v).max())


@pytest.mark.parametrize("largest", [3.0, 9.0, 16.0])  # voxels: no, some, most steps are long
def test_long_steps_leave_the_fast_path_when_they_come(largest, monkeypatch):
    noise = np.random.default_rng(0).standard_normal((16, 2, 24, 20))
    v = velocity(noise - noise.mean(axis=(2, 3), keepdims=True), PENALTY)
    v *= np.linspace(0.1, largest, 16).reshape(-1, 1, 1, 1) / np.abs(v).max(
        axis=(1, 2, 3), keepdims=True
    )
    warp, last = shooting.shoot(v, PENALTY, return_velocity=True)
    monkeypatch.setattr(shooting, "is_small_plane", lambda *_: False)
    expected, expected_last = shooting.shoot(v, PENALTY, return_velocity=True)
    assert np.abs(warp - expected).max() < 1e-10 * largest
    assert np.abs(last - expected_last).max() < 1e-10 * largest
