"""Elementary functions: as exact as float32 is."""

import numba
import numpy as np

from anamorph.kernels.formulas.elementary import exp_of_nonpositive, log1p_of_fraction


@numba.vectorize
def exponential(x):
    return exp_of_nonpositive(x)


@numba.vectorize
def logarithm(t):
    return log1p_of_fraction(t)


def test_exponential_is_exact_to_rounding():
    x = -np.concatenate([np.linspace(0, 87, 200_001), np.geomspace(1e-30, 87, 1000)])
    x = x.astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    assert np.abs(exponential(x) / expected - 1).max() < 3e-7


def test_exponential_of_very_little_is_almost_nothing():
    assert 0 < exponential(np.float32(-1e9)) < 1e-37


def test_logarithm_is_exact_to_rounding():
    t = np.concatenate([np.linspace(0, 1, 100_001), np.geomspace(1e-30, 1, 1000)])[1:]
    t = t.astype(np.float32)
    expected = np.log1p(t.astype(np.float64))
    assert np.abs(logarithm(t) / expected - 1).max() < 3e-7
    assert logarithm(np.float32(0)) == 0
