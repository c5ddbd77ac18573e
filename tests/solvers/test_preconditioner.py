"""A V-cycle as a metric: symmetric, positive, near the inverse, and the same for any part."""

import numpy as np
import pytest

from anamorph.solvers import VelocityPreconditioner, solve_velocity

_PENALTY, _WEIGHT = (1e-3, 0.1, 2.0, 1.0, 1.0), 0.4


@pytest.fixture(params=[(20, 26), (12, 9, 10)], ids=["2D", "3D"])
def problem(request):
    """Return Hessians (N, P, *space) of rank one, some voxels empty, and two fields (N, d, ...)."""
    space, draws = request.param, np.random.default_rng(0)
    d = len(space)
    slopes = draws.standard_normal((3, d, *space)) * (draws.random((3, 1, *space)) > 0.3)
    diagonal = [slopes[:, i] ** 2 for i in range(d)]
    pairs = [(0, 1), (0, 2), (1, 2)][: d * (d - 1) // 2]
    packed = np.stack(diagonal + [slopes[:, i] * slopes[:, j] for i, j in pairs], axis=1)
    fields = draws.standard_normal((2, 3, d, *space)).astype(np.float32)
    return packed.astype(np.float32), *fields


def prepared(hessian):
    return VelocityPreconditioner(hessian, _PENALTY, (1.0,) * (hessian.ndim - 2), _WEIGHT)


def test_it_is_symmetric_and_positive(problem):
    hessian, one, other = problem
    apply = prepared(hessian)
    axes = tuple(range(1, one.ndim))
    there, back = (apply(one) * other).sum(axis=axes), (one * apply(other)).sum(axis=axes)
    scale = np.sqrt((apply(one) * one).sum(axis=axes) * (apply(other) * other).sum(axis=axes))
    np.testing.assert_allclose(there / scale, back / scale, atol=1e-5)
    assert ((apply(one) * one).sum(axis=axes) > 0).all()


def test_it_is_near_the_inverse(problem):
    hessian, field, _ = problem
    size = (1.0,) * (hessian.ndim - 2)
    exact = solve_velocity(hessian, field, _PENALTY, size, weight=_WEIGHT, tolerance=1e-5).x
    # In the norm of the energy, x'(H + tau L)x, a cycle leaves a part of the error.
    found = prepared(hessian)(field)
    axes = tuple(range(1, field.ndim))
    gain = (field * found).sum(axis=axes) / (field * exact).sum(axis=axes)
    assert (gain > 0.5).all()
    assert (gain < 1.2).all()


def test_every_field_has_its_own_hessian(problem):
    hessian, field, _ = problem
    together = prepared(hessian)(field)
    for n in range(len(field)):
        alone = prepared(hessian[n : n + 1])(field[n : n + 1])
        np.testing.assert_allclose(alone, together[n : n + 1], atol=1e-4 * np.abs(together).max())


def test_fields_are_left_as_they_are_and_results_do_not_change(problem):
    hessian, one, other = problem
    apply, before = prepared(hessian), one.copy()
    first = apply(one)
    kept = first.copy()
    apply(other)
    np.testing.assert_array_equal(one, before)
    np.testing.assert_array_equal(first, kept)
