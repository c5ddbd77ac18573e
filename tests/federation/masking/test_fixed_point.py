"""Fixed-point numbers: exact sums, small errors, no wrap around."""

import numpy as np
import pytest

from anamorph.federation.masking.field import PRIME, add_into
from anamorph.federation.masking.fixed_point import from_fixed_point, to_fixed_point


@pytest.mark.parametrize("exponent", [-300, -20, 0, 7, 40, 300])
def test_values_come_back_to_the_last_bits(exponent):
    values = np.random.default_rng(0).uniform(-1, 1, 1000) * 2.0**exponent
    back = from_fixed_point(to_fixed_point(values, exponent), exponent)
    assert np.abs(back - values).max() <= 2.0 ** (exponent - 58)


def test_sums_of_the_largest_values_do_not_wrap_around():
    largest = np.array([1.0, -1.0]) * 2.0**5
    total = np.zeros(2, np.uint64)
    for _ in range(3):  # three times what is allowed
        add_into(total, to_fixed_point(largest, 5))
    assert total.max() < PRIME
    np.testing.assert_array_equal(from_fixed_point(total, 5), 3 * largest)
