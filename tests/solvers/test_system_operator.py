"""H + L on one grid, as stencils and as a matrix, against its symbol."""

from __future__ import annotations

import numpy as np
import pytest

from anamorph.solvers.system_operator import (
    Regulariser,
    SystemOperator,
    bound_rough_spectrum,
    evaluate_diagonal,
)
from anamorph.solvers.systems import FieldBlocks
from tests.conftest import relative_error
from tests.solvers.systems import matrix, product, random_hessian

VELOCITY = (0.3, 0.7, 1.1, 0.5, 0.9)
GRIDS = [
    ((1, 1), (1.0, 2.0)),
    ((2, 3), (1.5, 0.8)),
    ((7, 4), (1.0, 1.0)),
    ((5, 1, 2), (1.0, 0.7, 1.3)),
    ((4, 5, 3), (1.5, 1.0, 0.8)),
]


def make(shape, voxel_size, penalty, n_components, hessians, dtype=np.float64):
    blocks = FieldBlocks(shape, len(hessians), np.dtype(dtype))
    regulariser = Regulariser(penalty, voxel_size, n_components)
    return SystemOperator(blocks, voxel_size, regulariser, blocks.load(hessians.astype(dtype)))


@pytest.mark.parametrize(("shape", "voxel_size"), GRIDS)
@pytest.mark.parametrize("penalty", [VELOCITY, (0.3, 0.7, 1.1)])
def test_stencils_are_the_symbol(shape, voxel_size, penalty):
    rng = np.random.default_rng(0)
    n = len(shape) if len(penalty) == 5 else 3
    hessians = np.stack([random_hessian(rng, n, shape) for _ in range(2)])
    operator = make(shape, voxel_size, penalty, n, hessians)
    fields = rng.standard_normal((2, n, *shape))
    x = operator.blocks.load(fields)
    out = operator.blocks.zeros(n)
    operator.apply(out, x)
    expected = np.stack(
        [product(h, f, penalty, voxel_size) for h, f in zip(hessians, fields, strict=True)]
    )
    assert relative_error(operator.blocks.unload(out), expected) < 1e-13
    out[...] = x
    operator.subtract(out, x)
    assert relative_error(operator.blocks.unload(out), fields - expected) < 1e-13


@pytest.mark.parametrize(("shape", "voxel_size"), GRIDS)
def test_matrix_and_diagonal(shape, voxel_size):
    rng = np.random.default_rng(1)
    n = len(shape)
    hessian = random_hessian(rng, n, shape)
    operator = make(shape, voxel_size, VELOCITY, n, hessian[None])
    expected = matrix(hessian, (n, *shape), VELOCITY, voxel_size)
    assert relative_error(operator.dense()[0], expected) < 1e-13
    penalty_only = matrix(0 * hessian, (n, *shape), VELOCITY, voxel_size)
    by_component = np.diagonal(penalty_only).reshape(n, -1)
    assert (
        relative_error(
            evaluate_diagonal(operator.regulariser, shape, voxel_size), by_component[:, 0]
        )
        < 1e-13
    )


def test_constants_keep_w0_in_float32():
    penalty = (1e-5, 0.0, 100.0, 1.0, 1.0)
    operator = make((8, 9), (1.0, 2.0), penalty, 2, np.zeros((1, 2, 8, 9)), np.float32)
    x = operator.blocks.load(np.ones((1, 2, 8, 9), np.float32))
    out = operator.blocks.zeros(2)
    operator.apply(out, x)
    result = operator.blocks.unload(out)[0]
    np.testing.assert_allclose(result[0], 1e-5, rtol=1e-6)
    np.testing.assert_allclose(result[1], 4e-5, rtol=1e-6)


def test_a_coarse_grid_keeps_the_energy_of_smooth_velocities():
    # Velocities in voxels of the fine grid: the same field on half the voxels has half the energy.
    voxel_size, energies = (1.0, 1.5), []
    for n in (128, 64):
        spacing = (128 / n, 1.5 * 128 / n)
        regulariser = Regulariser((0.1, 0.2, 0.3, 0.4, 0.5), voxel_size, 2)
        blocks = FieldBlocks((n, n), 1, np.dtype(np.float64))
        operator = SystemOperator(blocks, spacing, regulariser, blocks.zeros(2))
        y, x = np.meshgrid(*[2 * np.pi * (np.arange(n) + 0.5) / n] * 2, indexing="ij")
        field = blocks.load(np.stack([np.sin(x + 2 * y), np.cos(x - y)])[None])
        out = blocks.zeros(2)
        operator.apply(out, field)
        energies.append(blocks.dot(field, out)[0] / n**2)
    assert energies[1] == pytest.approx(energies[0], rel=5e-3)


@pytest.mark.parametrize("penalty", [VELOCITY, (0.0, 0.0, 1.0, 0.0, 0.0), (1e-3, 0, 0, 0.1, 2.0)])
@pytest.mark.parametrize(("shape", "voxel_size"), [((9, 7), (1.0, 1.4)), ((5, 4, 4), (1, 1, 2))])
def test_relaxation_knows_the_largest_eigenvalue(shape, voxel_size, penalty):
    rng = np.random.default_rng(2)
    n = len(shape)
    regulariser = Regulariser(penalty, voxel_size, n)
    smallest, largest = bound_rough_spectrum(regulariser, shape, voxel_size, (1,) * n)
    for hessian in (np.zeros((n, *shape)), random_hessian(rng, n, shape, scale=10)):
        operator = make(shape, voxel_size, penalty, n, hessian[None])
        whole = operator.dense()[0]
        blocks = whole * np.kron(np.ones((n, n)), np.eye(whole.shape[0] // n))
        if not hessian.any():
            blocks = np.diag(np.diagonal(whole))
        eigenvalues = np.linalg.eigvals(np.linalg.solve(blocks, whole)).real
        assert eigenvalues.max() <= largest * (1 + 1e-9)
        assert 0 < smallest < eigenvalues.max()
        # Not far above either, or relaxation would be slow.
        if not hessian.any():
            assert largest < 1.5 * eigenvalues.max()
