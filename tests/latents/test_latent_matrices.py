"""Symmetric matrices: determinants, inverses, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamorph.latents import NotPositiveDefiniteError, log_determinant
from anamorph.latents.matrices import inverse, symmetric_matrix
from tests.latents.random_matrices import random_spd


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 20),
    log10_condition=st.floats(0, 12),
    log10_scale=st.floats(-30, 30),
)
def test_log_determinant_adds_up_the_eigenvalues(seed, size, log10_condition, log10_scale):
    matrix = random_spd(np.random.default_rng(seed), size, log10_condition, 10**log10_scale)
    eigenvalues = 10**log10_scale * np.logspace(0, -log10_condition, size)
    # the smallest eigenvalues of the matrix carry its rounding times its condition
    tolerance = 1e-9 + 1e-15 * size * 10**log10_condition
    assert log_determinant(matrix) == pytest.approx(np.log(eigenvalues).sum(), abs=tolerance)


def test_log_determinant_is_exact_for_a_known_matrix():
    assert log_determinant([[2.0, 1.0], [1.0, 3.0]]) == pytest.approx(np.log(5.0), rel=1e-15)


def test_inverse_is_symmetric_and_inverts():
    matrix = random_spd(np.random.default_rng(0), 12, 6)
    result = inverse(matrix, "matrix")
    np.testing.assert_array_equal(result, result.T)
    np.testing.assert_allclose(result @ matrix, np.eye(12), atol=1e-8)


def test_matrix_that_is_not_positive_definite_is_named():
    with pytest.raises(
        NotPositiveDefiniteError, match=r"P must be positive definite, got .* eigenvalue -0\.5"
    ):
        log_determinant(np.diag([1.0, -0.5]), "P")


def test_rounding_is_symmetrised():
    matrix = symmetric_matrix([[1.0, 2.0 + 1e-9], [2.0 - 1e-9, 5.0]], "C")
    np.testing.assert_array_equal(matrix, [[1.0, 2.0], [2.0, 5.0]])


def test_impossible_input_is_refused():
    with pytest.raises(ValueError, match=r"C must be a square matrix, got shape \(2, 3\)"):
        symmetric_matrix(np.zeros((2, 3)), "C")
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="C must be finite, got NaN or infinity"):
            symmetric_matrix(np.diag([1.0, value]), "C")
