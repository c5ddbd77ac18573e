"""Transfers between grids, V-cycles and full multigrid."""

from __future__ import annotations

import numpy as np
import pytest

from anamorph.solvers.multigrid import coarser_grid, multigrid, prolong, restrict
from anamorph.solvers.system_operator import Regulariser, SystemOperator
from anamorph.solvers.systems import FieldBlocks
from tests.solvers.systems import random_hessian

DTYPE = np.dtype(np.float64)


@pytest.mark.parametrize(
    ("fine", "coarse"), [((8, 6), (4, 3)), ((7, 5), (4, 5)), ((3, 2, 5), (2, 1, 3))]
)
def test_averaging_is_the_transpose_of_interpolation(fine, coarse):
    rng = np.random.default_rng(0)
    fine_blocks, coarse_blocks = FieldBlocks(fine, 2, DTYPE), FieldBlocks(coarse, 2, DTYPE)
    x = coarse_blocks.load(rng.standard_normal((2, 3, *coarse)))
    y = fine_blocks.load(rng.standard_normal((2, 3, *fine)))
    ratio = np.prod(fine) / np.prod(coarse)
    np.testing.assert_allclose(
        fine_blocks.dot(prolong(x, fine_blocks), y),
        ratio * coarse_blocks.dot(x, restrict(y, coarse_blocks)),
        rtol=1e-12,
    )
    ones = coarse_blocks.load(np.ones((2, 1, *coarse)))
    np.testing.assert_allclose(prolong(ones, fine_blocks), 1, rtol=1e-12)


def test_interpolation_is_exact_for_straight_lines():
    fine, coarse = FieldBlocks((20, 3), 1, DTYPE), FieldBlocks((10, 3), 1, DTYPE)
    line = np.broadcast_to(np.arange(10.0)[:, None], (1, 1, 10, 3))
    result = fine.unload(prolong(coarse.load(line), fine))[0, 0, :, 0]
    np.testing.assert_allclose(result[1:-1], (np.arange(20) - 0.5)[1:-1] / 2, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "spacing", "expected"),
    [
        ((8, 9), (1.0, 1.0), (4, 5)),
        ((8, 8), (1.0, 4.0), (4, 8)),
        ((1, 8), (1.0, 9.0), (1, 4)),
        ((6, 6, 6), (1.0, 1.4, 3.0), (3, 3, 6)),
    ],
)
def test_only_the_finely_sampled_axes_are_halved(shape, spacing, expected):
    coarse, coarse_spacing = coarser_grid(shape, spacing)
    assert coarse == expected
    extents = np.multiply(shape, spacing)
    np.testing.assert_allclose(np.multiply(coarse, coarse_spacing), extents)


def level_and_operator(shape, penalty, hessian):
    n = len(shape)
    blocks = FieldBlocks(shape, 1, DTYPE)
    voxel_size = (1.0,) * n
    regulariser = Regulariser(penalty, voxel_size, n)
    operator = SystemOperator(blocks, voxel_size, regulariser, blocks.load(hessian[None]))
    return multigrid(operator), operator


@pytest.mark.parametrize("shape", [(12, 9), (6, 5, 4)])
def test_a_cycle_is_symmetric_and_positive(shape):
    rng = np.random.default_rng(1)
    level, operator = level_and_operator(
        shape, (1e-3, 0, 2, 0.2, 0.3), random_hessian(rng, len(shape), shape)
    )
    blocks = operator.blocks
    a, b = (blocks.load(rng.standard_normal((1, len(shape), *shape))) for _ in range(2))
    cycle_a, cycle_b = level.cycle(a).copy(), level.cycle(b).copy()
    assert blocks.dot(a, cycle_b) == pytest.approx(blocks.dot(cycle_a, b), rel=1e-10)
    assert blocks.dot(a, cycle_a) > 0


@pytest.mark.parametrize("shape", [(32, 27), (16, 15, 14)])
@pytest.mark.parametrize("penalty", [(1e-3, 0, 10, 0.1, 0.2), (1e-3, 0.2, 0, 0, 0)])
def test_cycles_converge_fast_whatever_the_size(shape, penalty):
    rng = np.random.default_rng(2)
    n = len(shape)
    level, operator = level_and_operator(shape, penalty, random_hessian(rng, n, shape))
    blocks = operator.blocks
    error = blocks.load(rng.standard_normal((1, n, *shape)))
    product = blocks.zeros(n)

    def energy():
        blocks.fill_halo(error)
        operator.apply(product, error)
        return np.sqrt(blocks.dot(error, product)[0])

    energies = [energy()]
    for _ in range(6):
        error -= level.cycle(product)
        energies.append(energy())

    assert (energies[-1] / energies[2]) ** 0.25 < 0.7


def test_full_multigrid_is_a_good_start():
    rng = np.random.default_rng(3)
    shape = (32, 27)
    level, operator = level_and_operator(
        shape, (1e-3, 0, 10, 0.1, 0.2), random_hessian(rng, 2, shape)
    )
    blocks = operator.blocks
    exact = blocks.load(rng.standard_normal((1, 2, *shape)).cumsum(-1).cumsum(-2))
    g, error_product = blocks.zeros(2), blocks.zeros(2)
    operator.apply(g, exact)
    blocks.fill_halo(g)
    error = exact - level.solve_fully(g)
    operator.apply(error_product, error)
    assert blocks.dot(error, error_product) < 0.3**2 * blocks.dot(exact, g)
