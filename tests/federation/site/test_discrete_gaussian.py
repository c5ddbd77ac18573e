"""Discrete Gaussian noise: its distribution, and that it comes from the system's randomness."""

import random

import numpy as np
import pytest
from scipy import stats

from anamorph.federation.site.discrete_gaussian import discrete_gaussian


@pytest.mark.parametrize("variance", [1, 9])
def test_probabilities_are_those_of_the_formula(variance):
    below = random.Random(0).randrange
    drawn = np.array([discrete_gaussian(variance, below) for _ in range(20000)])
    values = np.arange(-40, 41)
    probabilities = np.exp(-(values**2) / (2 * variance))
    expected = len(drawn) * probabilities / probabilities.sum()
    observed = np.array([(drawn == value).sum() for value in values])
    used = expected > 5
    assert observed[~used].sum() < 60
    chi_square = np.sum((observed - expected)[used] ** 2 / expected[used])
    assert stats.chi2.sf(chi_square, used.sum() - 1) > 1e-3


def test_large_noise_is_gaussian():
    below, deviation = random.Random(1).randrange, 2**21
    drawn = np.array([discrete_gaussian(deviation**2, below) for _ in range(5000)]) / deviation
    assert stats.kstest(drawn, "norm").pvalue > 1e-3


def test_noise_is_not_the_same_twice():
    assert len({discrete_gaussian(2**60) for _ in range(50)}) == 50
