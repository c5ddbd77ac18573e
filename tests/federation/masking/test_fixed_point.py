"""Fixed-point numbers are as fine as they claim, and refuse what does not fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.federation import AnswerError, SumOverflowError
from anamorph.federation.masking.fixed_point import from_fixed_point, to_fixed_point


def test_overflow_is_an_error():
    with pytest.raises(SumOverflowError, match=r"x is not below 2\^4"):
        to_fixed_point(np.array([1.0, -16.0]), 4, 3, "x")
    largest = np.array([np.nextafter(16.0, 0), -np.nextafter(16.0, 0)])
    total = sum(to_fixed_point(largest, 4, 3, "x") for _ in range(3))
    np.testing.assert_allclose(from_fixed_point(total, 4, 3), 3 * largest)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_an_error(value):
    with pytest.raises(AnswerError, match="not finite"):
        to_fixed_point(np.array([value]), 4, 3, "x")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(3, 9))
def test_fixed_point_is_as_fine_as_it_says(values, n_sites):
    numbers = np.array(values)
    back = from_fixed_point(to_fixed_point(numbers, 20, n_sites, "x"), 20, n_sites)
    assert np.abs(back - numbers).max() <= 2.0 ** -(62 - 20 - 4)
