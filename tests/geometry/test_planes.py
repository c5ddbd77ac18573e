"""Small planes by matrices: the same as by Fourier transforms."""

import numpy as np
import pytest

from anamorph.geometry import paths, shooting, velocity
from anamorph.geometry.operators import (
    apply_symbol,
    packed_symbol,
    plane_symbol,
    real_fourier_matrix,
)
from anamorph.kernels.blocks import Blocks
from anamorph.kernels.cpu.planes import multiply_planes

PENALTY = (0.002, 0.02, 2.0, 0.2, 0.2)
FLOAT64 = np.dtype(np.float64)
planes = pytest.mark.parametrize("space", [(28, 28), (27, 32), (1, 9), (2, 5)])


def random_velocities(space):
    noise = np.random.default_rng(0).standard_normal((16, 2, *space))
    return velocity(noise - noise.mean(axis=(2, 3), keepdims=True), PENALTY)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 27])
def test_the_basis_is_orthonormal(length):
    matrix = real_fourier_matrix(length, FLOAT64)
    assert np.allclose(matrix @ matrix.T, np.eye(length), atol=1e-13)


@planes
@pytest.mark.parametrize("inverse", [False, True])
def test_matrices_and_transforms_multiply_by_the_same_symbol(space, inverse):
    blocks = Blocks(space, 8)
    images = np.random.default_rng(0).standard_normal((8, 2, *space))
    fields, out = blocks.load(images), blocks.load(images)
    settings = PENALTY, space, (1.0, 1.7), FLOAT64
    symbol = packed_symbol(*settings, inverse=inverse)
    expected = apply_symbol(fields[blocks.interior][None], symbol, workers=1)[0]
    matrices = [real_fourier_matrix(length, FLOAT64) for length in space]
    mean = np.arange(16.0).reshape(2, 8)

    def multiply(is_mean_known):
        scratch = np.empty((2, 2, *space, 8))
        symbol = plane_symbol(*settings, inverse=inverse)
        multiply_planes(fields, out, scratch, symbol, *matrices, mean, is_mean_known)
        return out[blocks.interior]

    largest = np.abs(expected).max()
    assert np.allclose(multiply(False), expected, rtol=0, atol=1e-12 * largest)
    total = multiply(True).sum(axis=(1, 2))
    assert np.allclose(total, mean * np.sqrt(np.prod(space)), atol=1e-12 * largest)


@planes
def test_shooting_by_matrices_is_shooting_by_transforms(space, monkeypatch):
    v = random_velocities(space)
    by_matrices = shooting.shoot(v, PENALTY)
    monkeypatch.setattr(shooting, "is_small_plane", lambda *_: False)
    assert np.abs(by_matrices - shooting.shoot(v, PENALTY)).max() < 1e-12 * (1 + np.abs(v).max())


@planes
def test_steps_in_one_call_are_the_steps_of_algorithm_4(space, monkeypatch):
    v = random_velocities(space)
    at_once = shooting.shoot(v, PENALTY, return_velocity=True)
    monkeypatch.setattr(paths.PlanePath, "take_short_steps", lambda *_: 0)
    one_by_one = shooting.shoot(v, PENALTY, return_velocity=True)
    for ours, expected in zip(at_once, one_by_one, strict=True):
        assert np.abs(ours - expected).max() < 1e-13 * (1 + np.abs(v).max())


@pytest.mark.parametrize("largest", [3.0, 9.0, 16.0])  # voxels: no, some, most steps are long
def test_long_steps_leave_the_fast_path_when_they_come(largest, monkeypatch):
    v = random_velocities((24, 20))
    v *= np.linspace(0.1, largest, 16).reshape(-1, 1, 1, 1) / np.abs(v).max(
        axis=(1, 2, 3), keepdims=True
    )
    warp, last = shooting.shoot(v, PENALTY, return_velocity=True)
    monkeypatch.setattr(shooting, "is_small_plane", lambda *_: False)
    expected, expected_last = shooting.shoot(v, PENALTY, return_velocity=True)
    assert np.abs(warp - expected).max() < 1e-10 * largest
    assert np.abs(last - expected_last).max() < 1e-10 * largest
