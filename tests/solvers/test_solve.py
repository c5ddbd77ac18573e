"""Solutions of (H + weight L) x = g against float64 references."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.kernels.threads import use_threads
from anamorph.solvers import solve_field, solve_velocity, systems
from tests.conftest import relative_error
from tests.solvers.systems import (
    categorical_hessian,
    errors,
    matrix,
    product,
    random_hessian,
)

TOLERANCE = 1e-3
SHAPE_PENALTIES = {
    "digits": (0.002, 0.02, 2, 0.2, 0.2),
    "faces": (1e-3, 0, 16, 1, 1),
    "brain slices": (1e-3, 0, 32, 0.25, 0.5),
    "brains": (1e-3, 0, 10, 0.1, 0.2),
}
FIELD_PENALTIES = {
    "faces": (4, 512, 64),
    "digits": (0.002, 0.2, 0),
    "brain slices": (0.1, 16, 128),
    "brains": (0.01, 1, 50),
    "mean face": (1e-4, 0.1, 0.1),
    "mean digit": (1e-7, 1e-5, 0),
    "mean brain": (1e-5, 0.01, 0.1),
}


def solve(hessian, gradient, penalty, voxel_size, **options):
    function = solve_velocity if len(penalty) == 5 else solve_field
    return function(hessian, gradient, penalty, voxel_size, **options)


def check_default(hessian, gradient, penalty, voxel_size, weight=1.0):
    """Solve in float32 at the default tolerance, against a float64 solution of one system."""
    exact = solve(
        hessian, gradient, penalty, voxel_size, weight=weight, tolerance=1e-9, max_cycles=300
    )
    assert exact.converged
    assert exact.x.dtype == np.float64
    solution = solve(
        hessian.astype(np.float32), gradient.astype(np.float32), penalty, voxel_size, weight=weight
    )
    assert solution.converged
    assert solution.x.dtype == np.float32
    residual, energy_error = errors(solution.x, exact.x, hessian, penalty, voxel_size, weight)
    assert residual < TOLERANCE * 1.01
    assert energy_error < TOLERANCE
    assert solution.residual == pytest.approx(residual, rel=0.05, abs=1e-5)


@pytest.mark.parametrize(
    ("case", "kind", "tolerance"),
    [
        ("iso2d", "velocity", 2.5e-4),
        ("iso2d", "scalar", 1.9e-4),
        ("iso2d", "class", 5.5e-5),
        ("aniso2d", "velocity", 2.5e-4),
        ("aniso2d", "scalar", 1.9e-4),
        ("aniso2d", "class", 1.6e-4),
        ("aniso3d", "velocity", 2.5e-4),
        ("aniso3d", "scalar", 1.9e-4),
    ],
)
def test_golden(golden, case, kind, tolerance):
    file = golden("solve")
    penalty = file[f"{case}_{'velocity' if kind == 'velocity' else 'field'}_penalty"]
    hessian, gradient = file[f"{case}_{kind}_hessian"], file[f"{case}_{kind}_rhs"]
    solution = solve(hessian, gradient, penalty, file[f"{case}_voxel_size"], tolerance=1e-5)
    assert solution.converged
    assert relative_error(solution.x, file[f"{case}_{kind}_solution"]) < tolerance


def test_golden_classes_on_a_fine_anisotropic_grid(golden):
    # The reference has not converged there: ours must have the lower objective and residual.
    file = golden("solve")
    hessian, g, golden_x = (file[f"aniso3d_class_{n}"] for n in ("hessian", "rhs", "solution"))
    penalty, voxel_size = file["aniso3d_field_penalty"], file["aniso3d_voxel_size"]
    x = solve_field(hessian, g, penalty, voxel_size, tolerance=5e-5).x

    def residual(x):
        return np.linalg.norm(product(hessian, x, penalty, voxel_size) - g) / np.linalg.norm(g)

    def objective(x):
        x = x.astype(np.float64)
        return np.sum(x * (0.5 * product(hessian, x, penalty, voxel_size) - g))

    assert residual(x) < 5e-5
    assert objective(x) < objective(golden_x)
    assert relative_error(x, golden_x) < 2e-2


@st.composite
def small_systems(draw):
    space = tuple(draw(st.lists(st.integers(1, 7), min_size=2, max_size=3)))
    voxel_size = tuple(draw(st.floats(0.5, 3)) for _ in space)
    weights = st.one_of(st.just(0.0), st.floats(1e-3, 10))
    is_velocity = draw(st.booleans())
    rest = [draw(weights) for _ in range(4 if is_velocity else 2)]
    n = len(space) if is_velocity else draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    scale = 10 ** draw(st.floats(-4, 4))
    hessian = random_hessian(rng, n, space, rank=draw(st.integers(1, 2)), scale=scale)
    if draw(st.booleans()):
        hessian = hessian[:n]
    gradient = rng.standard_normal((n, *space))
    penalty = (draw(st.floats(1e-3, 1)), *rest)
    return hessian, gradient, penalty, voxel_size, draw(st.floats(0.1, 1000))


@given(small_systems())
def test_small_systems_against_dense_matrices(system):
    hessian, gradient, penalty, voxel_size, weight = system
    whole = matrix(hessian, gradient.shape, penalty, voxel_size, weight)
    exact = np.linalg.solve(whole, gradient.ravel()).reshape(gradient.shape)
    for tolerance in (1e-3, 1e-7):
        solution = solve(hessian, gradient, penalty, voxel_size, weight=weight, tolerance=tolerance)
        residual, energy = errors(solution.x, exact, hessian, penalty, voxel_size, weight)
        assert solution.converged
        assert residual < 1.01 * tolerance
        assert energy < tolerance
        assert solution.residual == pytest.approx(residual, rel=1e-3, abs=1e-10)


@pytest.mark.parametrize("name", SHAPE_PENALTIES)
@pytest.mark.parametrize(
    ("shape", "voxel_size"), [((29, 26), (1.0, 1.0)), ((15, 14, 13), (1.0, 1.3, 3.0))]
)
def test_shape_settings_of_the_paper(name, shape, voxel_size):
    # One image gradient per voxel leaves each matrix of rank one, and half of the grid is empty.
    rng = np.random.default_rng(4)
    hessian = 300 * random_hessian(rng, len(shape), shape)
    gradient = rng.standard_normal((len(shape), *shape)) * (hessian[0] > 0)
    check_default(hessian, gradient, SHAPE_PENALTIES[name], voxel_size, weight=300.0)


@pytest.mark.parametrize("name", FIELD_PENALTIES)
@pytest.mark.parametrize("shape", [(29, 26), (15, 14, 13)])
def test_appearance_settings_of_the_paper(name, shape):
    rng = np.random.default_rng(5)
    hessian = 300 * categorical_hessian(rng, 3, shape)
    hessian[:, : shape[0] // 2] = 0
    gradient = rng.standard_normal((3, *shape)) * (hessian[0] > 0)
    gradient -= gradient.mean(axis=0)
    check_default(hessian, gradient, FIELD_PENALTIES[name], (1.0,) * len(shape), weight=300.0)


@pytest.mark.parametrize("penalty", [(0.01, 1, 50), (0.002, 0.2, 0), (1e-5, 0.01, 0.1)])
def test_hessians_of_large_contrast(penalty):
    rng = np.random.default_rng(6)
    hessian = 10 ** rng.uniform(-4, 4, (1, 30, 29))
    hessian[:, :10] = 0
    check_default(hessian, rng.standard_normal((1, 30, 29)) * np.sqrt(hessian), penalty, (1, 1))


def test_large_unobserved_regions():
    # Smooth errors there die slowly, long after the residual is small: the energy must be watched.
    rng = np.random.default_rng(19)
    hessian = np.zeros((1, 96, 96))
    hessian[:, 15:80, 15:80] = 100
    gradient = hessian * rng.standard_normal(hessian.shape)
    check_default(hessian, gradient, FIELD_PENALTIES["mean face"], (1, 1))


def test_without_a_hessian_the_solution_is_that_of_the_greens_function():
    rng = np.random.default_rng(7)
    gradient = rng.standard_normal((2, 24, 21))
    gradient -= gradient.mean(axis=(1, 2), keepdims=True)
    check_default(np.zeros((2, 24, 21)), gradient, (1e-5, 0, 10, 0.1, 0.2), (1, 1))


def test_large_translations_are_found_as_exactly_as_float32_can_hold_them():
    # x is about 1e5 everywhere: rounding it to float32 leaves a residual larger than g itself.
    penalty, gradient = (1e-5, 0, 10, 0.1, 0.2), np.ones((2, 20, 20), np.float32)
    gradient[0, 3, 4] = 2
    solution = solve_velocity(np.zeros_like(gradient), gradient, penalty)
    exact = solve_velocity(np.zeros((2, 20, 20)), gradient, penalty, tolerance=1e-8).x
    _, energy = errors(solution.x, exact, np.zeros((2, 20, 20)), penalty, (1, 1))
    assert energy < TOLERANCE
    assert solution.converged


@pytest.mark.parametrize("penalty", [(2, 0, 0), (2, 0, 0, 0, 0), (0, 1, 0), (0, 0, 0, 1, 0)])
def test_penalties_of_one_term(penalty):
    rng = np.random.default_rng(20)
    hessian = random_hessian(rng, 2, (19, 18), rank=2)
    check_default(hessian, rng.standard_normal((2, 19, 18)), penalty, (1, 1.5))


def test_penalties_without_an_absolute_term():
    rng = np.random.default_rng(8)
    hessian = categorical_hessian(rng, 3, (20, 19))
    gradient = rng.standard_normal((3, 20, 19))
    gradient -= gradient.mean(axis=0)  # constants over classes are free, and not asked for
    solution = solve_field(hessian, gradient, (0, 1, 5), (1, 1), tolerance=1e-6)
    assert solution.converged
    residual = product(hessian, solution.x, (0, 1, 5), (1, 1)) - gradient
    assert np.linalg.norm(residual) < 1.01e-6 * np.linalg.norm(gradient)


def batch(rng, k, shape):
    hessian = np.stack([random_hessian(rng, len(shape), shape) for _ in range(k)])
    gradient = rng.standard_normal((k, len(shape), *shape)) * 10 ** rng.uniform(
        -3, 3, (k, 1, *(1 for _ in shape))
    )
    return hessian.astype(np.float32), gradient.astype(np.float32), rng.uniform(1, 9, k)


def test_batches_and_threads_do_not_matter(monkeypatch):
    hessian, gradient, weight = batch(np.random.default_rng(9), 6, (25, 22))
    penalty = SHAPE_PENALTIES["digits"]
    together = solve_velocity(hessian, gradient, penalty, weight=weight)
    assert together.residual.shape == together.n_cycles.shape == (6,)
    monkeypatch.setattr(systems, "_SMALLEST_BLOCK", 1)
    with use_threads(3):
        apart = solve_velocity(
            hessian.reshape(2, 3, *hessian.shape[1:]),
            gradient.reshape(2, 3, *gradient.shape[1:]),
            penalty,
            weight=weight.reshape(2, 3),
        )
    assert apart.residual.shape == (2, 3)
    for k in range(6):
        alone = solve_velocity(hessian[k], gradient[k], penalty, weight=weight[k])
        assert alone.residual.shape == ()
        for other in (together.x, apart.x.reshape(gradient.shape)):
            assert relative_error(other[k], alone.x) < 2e-6


def test_threads_share_a_large_grid(monkeypatch):
    hessian, gradient, _ = batch(np.random.default_rng(10), 1, (33, 32, 31))
    penalty = SHAPE_PENALTIES["brains"]
    with use_threads(1):
        alone = solve_velocity(hessian, gradient, penalty)
    monkeypatch.setattr("anamorph.solvers.systems._SMALLEST_SLAB", 1 << 12)
    with use_threads(3):
        shared = solve_velocity(hessian, gradient, penalty)
    assert relative_error(shared.x, alone.x) < 2e-6


def test_a_weight_scales_the_penalty():
    hessian, gradient, _ = batch(np.random.default_rng(11), 1, (16, 15))
    penalty = np.array(SHAPE_PENALTIES["faces"])
    weighted = solve_velocity(hessian, gradient, penalty, weight=250.0, tolerance=1e-6)
    scaled = solve_velocity(hessian, gradient, 250.0 * penalty, tolerance=1e-6)
    assert relative_error(weighted.x, scaled.x) < 1e-5


def test_a_diagonal_hessian_is_a_full_one_without_the_rest():
    rng = np.random.default_rng(12)
    diagonal = rng.random((3, 12, 11))
    full = np.concatenate([diagonal, np.zeros_like(diagonal)])
    gradient = rng.standard_normal((3, 12, 11))
    solutions = [solve_field(h, gradient, (0.1, 1, 1), (1, 2)).x for h in (diagonal, full)]
    assert relative_error(*solutions) < 1e-12


def test_zero_gradient_and_empty_batch():
    hessian, gradient, _ = batch(np.random.default_rng(13), 2, (9, 8))
    gradient[0] = 0
    start = np.ones_like(gradient)
    for options in ({}, {"start": start}):
        solution = solve_velocity(hessian, gradient, SHAPE_PENALTIES["digits"], **options)
        assert not solution.x[0].any()
        assert solution.residual[0] == 0
        assert solution.converged
        assert solution.x[1].any()
    empty = solve_velocity(hessian[:0], gradient[:0], SHAPE_PENALTIES["digits"])
    assert empty.x.shape == (0, 2, 9, 8)
    assert empty.converged


def test_a_good_start_saves_cycles():
    hessian, gradient, _ = batch(np.random.default_rng(14), 1, (31, 30))
    penalty = SHAPE_PENALTIES["brains"]
    cold = solve_velocity(hessian, gradient, penalty, tolerance=1e-5)
    warm = solve_velocity(hessian, gradient, penalty, tolerance=1e-5, start=cold.x)
    assert warm.converged
    assert warm.n_cycles < cold.n_cycles


def test_a_small_residual_alone_is_not_convergence():
    hessian = np.zeros((1, 96, 96))
    hessian[:, 15:80, 15:80] = 100
    gradient = hessian * np.random.default_rng(19).standard_normal(hessian.shape)
    penalty = FIELD_PENALTIES["mean face"]
    solution = solve_field(hessian, gradient, penalty, (1, 1), tolerance=2e-3, max_cycles=1)
    assert solution.residual < 2e-3
    assert not solution.converged


def test_what_does_not_converge_is_reported(caplog):
    hessian, gradient, _ = batch(np.random.default_rng(15), 2, (31, 30))
    gradient[0] = 0
    with caplog.at_level(logging.WARNING, logger="anamorph"):
        solution = solve_velocity(
            hessian, gradient, SHAPE_PENALTIES["brains"], max_cycles=1, tolerance=1e-5
        )
    assert not solution.converged
    assert solution.residual[1] > 1e-5
    assert "1 of 2 linear systems did not reach the tolerance 1e-05" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPE_PENALTIES)
def test_volumes(name):
    rng = np.random.default_rng(16)
    shape = (48, 47, 45)
    hessian = random_hessian(rng, 3, shape)
    gradient = rng.standard_normal((3, *shape)) * (hessian[0] > 0)
    check_default(hessian, gradient, SHAPE_PENALTIES[name], (1, 1, 1))


@pytest.mark.slow
def test_nearly_incompressible_motion_takes_longer_but_arrives():
    rng = np.random.default_rng(17)
    shape = (28, 27)
    hessian = random_hessian(rng, 2, shape)
    check_default(hessian, rng.standard_normal((2, *shape)), (1e-3, 0, 0, 0.1, 100), (1, 1))


def test_the_order_of_packed_matrices():
    rng = np.random.default_rng(18)
    gradient = rng.standard_normal((3, 1, 1))
    h = np.array([1, 2, 3, 0, 0, 0]) + 0.1 * rng.random(6)
    whole = np.array([[h[0], h[3], h[4]], [h[3], h[1], h[5]], [h[4], h[5], h[2]]])
    x = solve_field(h[:, None, None], gradient, (1, 1, 1), (1, 1), tolerance=1e-10).x.ravel()
    np.testing.assert_allclose((whole + np.eye(3)) @ x, gradient.ravel(), rtol=1e-9)
