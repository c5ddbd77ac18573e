"""Expectation propagation: against integrals, finite differences, and data that are hard."""

import numpy as np
import pytest
from scipy.special import ndtr

from anamorph.classify.expectation_propagation import infer


def random_covariance(n, seed=0, scale=1.0):
    factors = np.random.default_rng(seed).standard_normal((n, n + 1))
    return scale * factors @ factors.T / n


def integrals(covariance, signs, new_covariances, new_variance):
    """Return ln p(y) and p(y* = 1 | y) by Gauss-Hermite quadrature in the whitened f."""
    n = len(signs)
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(*[nodes] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * n, indexing="ij"), axis=0).ravel()
    f = grid @ np.linalg.cholesky(covariance).T
    weight *= ndtr(signs * f).prod(axis=1)
    solved = np.linalg.solve(covariance, new_covariances)
    spread = new_variance - new_covariances @ solved
    probability = weight @ ndtr(f @ solved / np.sqrt(1 + spread)) / weight.sum()
    return np.log(weight.sum()), probability


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_marginal_likelihood_and_probabilities_are_nearly_the_integrals(n, scale):
    everything = random_covariance(n + 1, seed=n, scale=scale)
    covariance, new_covariances = everything[:n, :n], everything[n, :n]
    signs = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    posterior = infer(covariance, signs)
    expected, probability = integrals(covariance, signs, new_covariances, everything[n, n])
    mean, variance = posterior.predict(new_covariances[None], everything[n, n:])
    tolerance = 1e-8 if n == 1 else 0.005  # the integral of one factor is exact
    assert posterior.log_marginal_likelihood == pytest.approx(expected, abs=tolerance)
    assert ndtr(mean / np.sqrt(1 + variance))[0] == pytest.approx(probability, abs=0.005)


def test_at_the_end_every_site_matches_its_moments():
    """The mean and variance of Phi(y f) times the cavity are those of the posterior."""
    covariance = random_covariance(8, scale=3.0)
    signs = np.array([1, 1, -1, 1, -1, -1, 1, -1.0])
    posterior = infer(covariance, signs)
    mean, variance = posterior.predict(covariance, np.diagonal(covariance))
    for i, sign in enumerate(signs):
        cavity_precision = 1 / variance[i] - posterior.sites.precision[i]
        cavity_mean = (mean[i] / variance[i] - posterior.sites.shift[i]) / cavity_precision
        f = cavity_mean + np.linspace(-12, 12, 20001) / np.sqrt(cavity_precision)
        density = ndtr(sign * f) * np.exp(-cavity_precision * (f - cavity_mean) ** 2 / 2)
        density /= density.sum()
        assert density @ f == pytest.approx(mean[i], abs=1e-5)
        assert density @ f**2 - (density @ f) ** 2 == pytest.approx(variance[i], rel=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    parts = np.stack([random_covariance(12, seed) for seed in range(3)])
    signs = np.where(np.random.default_rng(5).random(12) < 0.5, 1.0, -1.0)

    def value(log_weights):
        weighted = np.exp(log_weights)[:, None, None] * parts
        posterior = infer(weighted.sum(axis=0), signs)
        return posterior.log_marginal_likelihood, posterior.gradient(weighted)

    at = np.array([0.3, -1.0, 1.5])
    _, gradient = value(at)
    steps = 1e-4 * np.eye(3)
    differences = [(value(at + step)[0] - value(at - step)[0]) / 2e-4 for step in steps]
    assert np.allclose(gradient, differences, rtol=1e-5, atol=1e-7)


def test_the_order_of_points_does_not_matter():
    covariance, order = random_covariance(20, scale=4.0), np.random.default_rng(1).permutation(20)
    signs = np.where(np.arange(20) < 9, 1.0, -1.0)
    one = infer(covariance, signs)
    other = infer(covariance[np.ix_(order, order)], signs[order])
    assert other.log_marginal_likelihood == pytest.approx(one.log_marginal_likelihood, abs=1e-8)
    assert np.allclose(other.coefficients, one.coefficients[order], atol=1e-6)


def test_the_start_does_not_matter():
    covariance = random_covariance(15)
    signs = np.where(np.arange(15) % 2, 1.0, -1.0)
    elsewhere = infer(random_covariance(15, seed=9, scale=10.0), -signs)
    one, other = infer(covariance, signs), infer(covariance, signs, elsewhere.sites)
    assert np.allclose(one.coefficients, other.coefficients, atol=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("is_separable", [True, False])
def test_it_converges_without_overflow_on_linear_data(scale, is_separable):
    """Rank-deficient covariances, hundreds of points, nothing or everything certain."""
    generator = np.random.default_rng(3)
    features = generator.standard_normal((150, 3))
    signs = np.sign(features[:, 0])
    if not is_separable:
        signs *= np.where(generator.random(150) < 0.2, -1, 1)
    with np.errstate(all="raise", under="ignore"):
        posterior = infer(scale * (features @ features.T + 1), signs)
    assert np.isfinite(posterior.log_marginal_likelihood)
    assert np.isfinite(posterior.coefficients).all()
    assert (posterior.sites.precision >= 0).all()
    if scale == 0:
        assert posterior.log_marginal_likelihood == pytest.approx(-150 * np.log(2))


def test_contradicting_labels_of_one_point_are_even_odds():
    posterior = infer(1e4 * np.ones((40, 40)), np.where(np.arange(40) < 20, 1.0, -1.0))
    mean, variance = posterior.predict(1e4 * np.ones((1, 40)), np.array([1e4]))
    assert ndtr(mean / np.sqrt(1 + variance))[0] == pytest.approx(0.5, abs=1e-6)
