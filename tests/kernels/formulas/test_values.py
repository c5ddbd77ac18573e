"""Formulas, compiled, beside what they say in NumPy."""

from itertools import combinations, product

import numpy as np
import pytest

from anamorph.geometry.operators import packed_pairs
from anamorph.kernels.formulas.chain_rules import (
    with_curvature,
    with_gradient,
    with_mixed_curvature,
    without_motion,
)
from anamorph.kernels.formulas.differences import (
    central_difference,
    mixed_difference,
    second_difference,
)
from anamorph.kernels.formulas.interpolation import (
    between,
    between_four,
    shared,
    shared_by_four,
)
from anamorph.kernels.formulas.steps import neighbour_weight, turned, twice_derivative
from anamorph.kernels.formulas.symmetric import (
    multiplied_by_2x2,
    multiplied_by_3x3,
    packed_place,
    relaxed_step,
    swept_entry,
    swept_neighbour,
    swept_pivot,
)

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def numbers(count, dtype, seed=0):
    """Return random numbers of one type."""
    return list(np.random.default_rng(seed).standard_normal(count).astype(dtype))


def assert_close(found, expected, dtype):
    assert np.allclose(found, expected, rtol=0, atol=8 * np.finfo(dtype).eps)


@every_dtype
def test_interpolation_weighs_corners(dtype):
    a, b, c, d = numbers(4, dtype)
    fy, fx = dtype(0.3), dtype(0.8)
    assert_close(between(a, b, fx), (1 - fx) * a + fx * b, dtype)
    expected = (1 - fy) * ((1 - fx) * a + fx * b) + fy * ((1 - fx) * c + fx * d)
    assert_close(between_four(a, b, c, d, fy, fx), expected, dtype)


@every_dtype
def test_sharing_is_the_transpose_of_interpolation(dtype):
    value, *corners = numbers(5, dtype)
    fy, fx = dtype(0.3), dtype(0.8)
    assert_close(np.dot(shared(value, fx), corners[:2]), value * between(*corners[:2], fx), dtype)
    expected = value * between_four(*corners, fy, fx)
    assert_close(np.dot(shared_by_four(value, fy, fx), corners), expected, dtype)


@every_dtype
@pytest.mark.parametrize("step", [-1.0, -0.3, 0.0, 0.6, 1.0])
def test_weights_of_neighbours_interpolate_short_steps(dtype, step):
    weights = [neighbour_weight(dtype(step), offset) for offset in (-1, 0, 1)]
    expected = [max(0.0, 1 - abs(step - offset)) for offset in (-1, 0, 1)]
    assert_close(weights, expected, dtype)


@every_dtype
def test_a_step_turns_the_momentum_by_its_transposed_jacobian(dtype):
    before, after, momentum = (np.array(numbers(3, dtype, seed)) for seed in range(3))
    scale = dtype(-0.25)
    derivatives = (after - before) / 2  # of all components along one axis
    terms = [twice_derivative(*item) for item in zip(before, after, momentum, strict=True)]
    found = turned(momentum[0], scale / 2, dtype(sum(terms)))
    assert_close(found, momentum[0] + scale * derivatives @ momentum, dtype)


@every_dtype
def test_differences_are_exact_for_quadratic_fields(dtype):
    def field(y, x):
        return dtype(1 + 2 * y - 3 * x + 4 * y * y + 5 * x * y - x * x)

    assert_close(central_difference(field(-1, 0), field(1, 0)), 2, dtype)
    assert_close(second_difference(field(0, -1), field(0, 0), field(0, 1)), 2, dtype)
    corners = field(1, 1), field(-1, -1), field(1, -1), field(-1, 1)
    assert_close(mixed_difference(*corners), 4 * 5, dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_packed_matrices_are_in_the_order_of_penalties(size):
    pairs = packed_pairs(size)
    assert [packed_place(i, j, size) for i, j in pairs] == list(range(len(pairs)))
    assert [packed_place(j, i, size) for i, j in pairs] == list(range(len(pairs)))


@every_dtype
@pytest.mark.parametrize(("size", "multiplied"), [(2, multiplied_by_2x2), (3, multiplied_by_3x3)])
def test_products_with_packed_matrices(dtype, size, multiplied):
    packed, vector = numbers(size * (size + 1) // 2, dtype), numbers(size, dtype, seed=1)
    assert_close(multiplied(*packed, *vector), unpacked(packed, size) @ vector, dtype)


def unpacked(packed, size):
    matrix = np.empty((size, size))
    for value, (i, j) in zip(packed, packed_pairs(size), strict=True):
        matrix[i, j] = matrix[j, i] = value
    return matrix


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sweeping_all_pivots_gives_minus_the_inverse(size):
    root = np.random.default_rng(0).standard_normal((size, size))
    matrix = root @ root.T + np.eye(size)
    expected = -np.linalg.inv(matrix)
    for k in range(size):
        others = [i for i in range(size) if i != k]
        pivot = matrix[k, k]
        for i, j in product(others, repeat=2):
            matrix[i, j] = swept_entry(matrix[i, j], matrix[i, k], matrix[k, j], pivot)
        for i in others:
            matrix[i, k] = matrix[k, i] = swept_neighbour(matrix[i, k], pivot)
        matrix[k, k] = swept_pivot(pivot)
    assert np.allclose(matrix, expected, rtol=1e-12)


@every_dtype
def test_relaxation_goes_on_and_descends(dtype):
    step, descent = numbers(2, dtype)
    found = relaxed_step(step, descent, dtype(0.4), dtype(0.7))
    assert_close(found, 0.4 * step + 0.7 * descent, dtype)


@every_dtype
def test_chain_rules_are_products_of_matrices(dtype):
    n_channels, n_dims = 3, 2
    slopes = np.array(numbers(n_channels * n_dims, dtype)).reshape(n_channels, n_dims)  # D
    g = np.array(numbers(n_channels, dtype, seed=1))
    packed = numbers(n_channels * (n_channels + 1) // 2, dtype, seed=2)
    gradient, hessian = np.zeros(n_dims, dtype), np.zeros((n_dims, n_dims), dtype)
    for i in range(n_dims):
        for c in range(n_channels):
            gradient[i] = with_gradient(gradient[i], g[c], slopes[c, i])
    for i, j in product(range(n_dims), repeat=2):
        for c in range(n_channels):
            hessian[i, j] = with_curvature(hessian[i, j], packed[c], slopes[c, i], slopes[c, j])
        for b, c in combinations(range(n_channels), 2):
            entry = packed[packed_place(b, c, n_channels)]
            hessian[i, j] = with_mixed_curvature(
                hessian[i, j], entry, slopes[b, i], slopes[c, i], slopes[b, j], slopes[c, j]
            )
    assert_close(gradient, -slopes.T @ g, dtype)
    assert_close(hessian, slopes.T @ unpacked(packed, n_channels) @ slopes, dtype)


@every_dtype
def test_motion_takes_the_gradient_of_the_image_with_it(dtype):
    effect, slope, motion = numbers(3, dtype)
    assert_close(without_motion(effect, slope, motion), effect - slope * motion, dtype)


@every_dtype
def test_constants_take_the_type_of_their_arguments(dtype):
    """A plain 0.5 would make float64 of float32, at half the speed."""
    zero = dtype(0)
    for formula, arguments in {
        central_difference: (zero, zero),
        swept_pivot: (dtype(1),),
        neighbour_weight: (zero, 1),
    }.items():
        formula(*arguments)
        (signature,) = (
            s for s in formula.nopython_signatures if str(s.args[0]) == np.dtype(dtype).name
        )
        assert str(signature.return_type) == np.dtype(dtype).name
