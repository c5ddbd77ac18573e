"""Quasi-Newton directions of many fields at once, on quadratic functions."""

import numpy as np
import pytest

from anamorph.solvers.quasi_newton import PairMemory, dot, each

ALL = np.arange(3)


@pytest.fixture
def problem():
    """Return matrices (N, n, n) of different condition, and right-hand sides."""
    draws = np.random.default_rng(0)
    factors = draws.standard_normal((3, 12, 12))
    matrices = factors @ factors.swapaxes(1, 2) + np.eye(12) * np.array([1, 10, 100])[:, None, None]
    return matrices, draws.standard_normal((3, 12))


def multiplied(matrices, fields):
    return (matrices @ fields[..., None])[..., 0]


def descend(matrices, sides, n_pairs, n_steps, metric=None):
    """Return the largest gradient after steps with exact line searches."""
    metric = np.repeat(np.eye(12)[None], 3, axis=0) if metric is None else metric
    x, memory = np.zeros_like(sides), PairMemory(n_pairs, 3)
    gradient = -sides
    for _ in range(n_steps):
        direction = memory.direction(
            gradient,
            lambda fields: np.linalg.solve(metric, fields[..., None])[..., 0],
            lambda step: dot(step, multiplied(metric, step)),
            ALL,
        )
        curvature = dot(direction, multiplied(matrices, direction))
        length = dot(direction, gradient) / np.maximum(curvature, 1e-300)
        step = -each(length, direction) * direction
        x = x + step
        after = multiplied(matrices, x) - sides
        memory.learn(step, after - gradient, ALL)
        gradient = after
    return np.abs(gradient).max()


def test_as_many_pairs_as_dimensions_solve_a_quadratic_function(problem):
    assert descend(*problem, n_pairs=12, n_steps=13) < 1e-8


def test_the_right_metric_needs_one_step(problem):
    matrices, sides = problem
    assert descend(matrices, sides, n_pairs=4, n_steps=1, metric=matrices) < 1e-10


def test_a_metric_that_is_wrong_by_a_factor_is_scaled(problem):
    matrices, sides = problem
    memory, solve = (
        PairMemory(1, 3),
        lambda fields: np.linalg.solve(matrices / 12, fields[..., None])[..., 0],
    )
    step = np.random.default_rng(1).standard_normal(sides.shape)
    memory.learn(step, multiplied(matrices, step), ALL)
    direction = memory.direction(
        sides, solve, lambda step: dot(step, multiplied(matrices / 12, step)), ALL
    )
    np.testing.assert_allclose(multiplied(matrices, direction), sides, atol=1e-8)


def test_nothing_is_learnt_from_changes_against_the_step(problem):
    _, sides = problem
    memory, step = PairMemory(3, 3), np.ones_like(sides)
    memory.learn(step, -step, ALL)
    direction = memory.direction(sides, lambda x: x, lambda x: dot(x, x), ALL)
    np.testing.assert_allclose(direction, sides)


def test_fields_that_rest_learn_nothing_and_the_others_forget_nothing(problem):
    matrices, sides = problem
    draws = np.random.default_rng(2)
    steps = [draws.standard_normal(sides.shape) for _ in range(3)]
    together, alone, moving = PairMemory(3, 3), PairMemory(3, 2), np.array([0, 2])
    for number, step in enumerate(steps):
        change = multiplied(matrices, step)
        some = ALL if number == 0 else moving
        together.learn(step[some], change[some], some)
        alone.learn(step[moving], change[moving], np.arange(2))

    def direction(memory, which, known):
        return memory.direction(sides[known], lambda x: x, lambda x: dot(x, x), which)

    expected = direction(alone, np.arange(2), moving)
    np.testing.assert_allclose(direction(together, moving, moving), expected, rtol=1e-10)
    np.testing.assert_allclose(direction(together, ALL, ALL)[moving], expected, rtol=1e-10)


def test_a_field_that_rests_while_others_take_many_steps_continues_as_alone(problem):
    matrices, sides = problem
    draws = np.random.default_rng(3)
    n_pairs, resting, moving = 2, np.array([1]), np.array([0, 2])
    together, alone = PairMemory(n_pairs, 3), PairMemory(n_pairs, 1)
    for number in range(n_pairs + 4):
        step = draws.standard_normal(sides.shape)
        change = multiplied(matrices, step)
        some = ALL if number < 3 else moving
        together.learn(step[some], change[some], some)
        if number < 3:
            alone.learn(step[resting], change[resting], np.arange(1))

    def direction(memory, which):
        return memory.direction(sides[resting], lambda x: x, lambda x: dot(x, x), which)

    expected = direction(alone, np.arange(1))
    np.testing.assert_allclose(direction(together, resting), expected, rtol=1e-12)
