"""q(A): golden numbers, the exact maximiser, and a divergence that is one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import wishart

from anamorph.latents import (
    WishartPosterior,
    check_prior_dof,
    expected_precision,
    wishart_part,
)
from tests.conftest import GOLDEN as FOLDER
from tests.latents.random_matrices import random_spd

GOLDEN = np.load(FOLDER / "orthogonalise.npz")
SCATTER = GOLDEN["latent_scatter"] + GOLDEN["covariance_sum"]
N_IMAGES = int(GOLDEN["n_images"])
GOLDEN_CASES = [(index, float(dof)) for index, dof in enumerate(GOLDEN["wishart_nu0"])]
PROPER_CASES = [(index, dof) for index, dof in GOLDEN_CASES if dof > len(SCATTER)]

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(("index", "prior_dof"), GOLDEN_CASES)
def test_expected_precision_is_golden(index, prior_dof):
    precision = expected_precision(SCATTER, N_IMAGES, prior_dof)
    np.testing.assert_allclose(precision, GOLDEN["wishart_precision"][index], rtol=1e-11)


@pytest.mark.parametrize(("index", "prior_dof"), PROPER_CASES)
def test_expectations_are_golden(index, prior_dof):
    posterior = WishartPosterior.from_scatter(SCATTER, N_IMAGES, prior_dof)
    expected = GOLDEN["wishart_e_lndet"][index]
    np.testing.assert_allclose(posterior.expected_log_determinant, expected, rtol=1e-11)
    np.testing.assert_allclose(
        posterior.negative_entropy, GOLDEN["wishart_ln_q"][index], rtol=1e-11
    )
    np.testing.assert_allclose(
        posterior.expected_log_prior, GOLDEN["wishart_ln_p"][index], rtol=1e-11
    )


def test_maximum_likelihood_is_golden():
    posterior = WishartPosterior.from_scatter(SCATTER, N_IMAGES, 0)
    expected = GOLDEN["wishart_e_lndet"][0]
    np.testing.assert_allclose(posterior.expected_log_determinant, expected, rtol=1e-11)
    assert posterior.divergence == 0.0


def test_wishart_part_adds_up_the_golden_terms():
    index, prior_dof = PROPER_CASES[0]
    posterior = WishartPosterior.from_scatter(SCATTER, N_IMAGES, prior_dof)
    expected = (
        0.5 * N_IMAGES * GOLDEN["wishart_e_lndet"][index]
        - 0.5 * np.trace(GOLDEN["wishart_precision"][index] @ SCATTER)
        - (GOLDEN["wishart_ln_q"][index] - GOLDEN["wishart_ln_p"][index])
        - 0.5 * N_IMAGES * np.trace(GOLDEN["basis_energy"])
    )
    part = wishart_part(posterior, SCATTER, GOLDEN["basis_energy"], N_IMAGES)
    np.testing.assert_allclose(part, expected, rtol=1e-11)


@pytest.mark.parametrize("prior_dof", [1.0, 1.5, 20.0])
def test_divergence_is_the_integral_for_one_latent(prior_dof):
    posterior = WishartPosterior.from_scatter([[7.0]], 4, prior_dof)
    density = wishart(posterior.dof, posterior.scale)
    prior = wishart(prior_dof, [[1.0 / prior_dof]])
    divergence, _ = quad(
        lambda a: density.pdf(a) * (density.logpdf(a) - prior.logpdf(a)), 1e-12, 30.0
    )
    log_determinant_, _ = quad(lambda a: density.pdf(a) * np.log(a), 1e-12, 30.0)
    assert posterior.divergence == pytest.approx(divergence, abs=1e-6)
    assert posterior.expected_log_determinant == pytest.approx(log_determinant_, abs=1e-6)


def perturbed(posterior, direction, amount):
    """Return a nearby posterior: Lambda along a direction in its own metric, nu by a share."""
    root = np.linalg.cholesky(posterior.scale)
    stretch = np.eye(len(root)) + amount * direction
    return replace(posterior, scale=root @ stretch @ root.T, dof=posterior.dof * (1 + amount))


@settings(max_examples=50)
@given(
    seed=seeds,
    n_components=st.integers(1, 8),
    n_images=st.integers(1, 200),
    log10_condition=st.floats(0, 10),
    excess_dof=st.floats(-0.5, 50),
)
def test_posterior_is_the_stationary_maximum_of_the_wishart_part(
    seed, n_components, n_images, log10_condition, excess_dof
):
    generator = np.random.default_rng(seed)
    scatter = random_spd(generator, n_components, log10_condition, scale=10.0 * n_images)
    energy = np.eye(n_components)
    posterior = WishartPosterior.from_scatter(scatter, n_images, n_components + excess_dof)
    direction = generator.standard_normal((n_components, n_components))
    direction = (direction + direction.T) / np.linalg.norm(direction + direction.T)

    def part(amount):
        return wishart_part(perturbed(posterior, direction, amount), scatter, energy, n_images)

    step = 1e-3
    best, above, below = part(0.0), part(step), part(-step)
    curvature = 2 * best - above - below
    assert curvature > 0
    assert abs(above - below) < 0.02 * curvature


def test_maximum_likelihood_is_maximal_up_to_its_loading():
    posterior = WishartPosterior.from_scatter(SCATTER, N_IMAGES, 0)

    def part(posterior):
        return wishart_part(posterior, SCATTER, GOLDEN["basis_energy"], N_IMAGES)

    for factor in (0.95, 1.05):
        assert part(replace(posterior, scale=factor * posterior.scale)) < part(posterior)


@settings(max_examples=50)
@given(
    seed=seeds,
    n_components=st.integers(1, 8),
    n_images=st.integers(1, 1000),
    log10_condition=st.floats(0, 12),
    excess_dof=st.floats(-0.9, 1000),
)
def test_divergence_is_not_negative(seed, n_components, n_images, log10_condition, excess_dof):
    scatter = random_spd(np.random.default_rng(seed), n_components, log10_condition, n_images)
    posterior = WishartPosterior.from_scatter(scatter, n_images, n_components + excess_dof)
    # the prior density holds the logarithm of gamma functions of nu0, whose rounding remains
    assert posterior.divergence >= -1e-10 * abs(posterior.expected_log_prior)


@pytest.mark.parametrize(("n_components", "prior_dof"), [(1, 0.5), (4, 4.0), (16, 1000.0)])
def test_divergence_of_the_prior_from_itself_is_zero(n_components, prior_dof):
    prior = WishartPosterior(np.eye(n_components) / prior_dof, prior_dof, prior_dof)
    assert prior.divergence == pytest.approx(0.0, abs=1e-9)


def test_maximum_likelihood_loads_a_singular_scatter():
    scatter = np.diag([200.0, 0.0])
    expected = 10 * np.diag([1 / (200 + 2e-3), 1 / 2e-3])
    np.testing.assert_allclose(expected_precision(scatter, 10, 0), expected, rtol=1e-12)


def test_prior_pulls_the_precision_to_the_identity():
    precision = expected_precision(SCATTER, N_IMAGES, 1e9)
    np.testing.assert_allclose(precision, np.eye(len(SCATTER)), atol=1e-5)


@pytest.mark.parametrize("prior_dof", [-1.0, 0.5, 3.0, np.nan, np.inf])
def test_improper_prior_is_refused(prior_dof):
    with pytest.raises(ValueError, match=r"prior_dof must be 0 .* greater than .* = 3, got"):
        check_prior_dof(prior_dof, 4)
    with pytest.raises(ValueError, match="prior_dof"):
        expected_precision(np.eye(4), 10, prior_dof)


@pytest.mark.parametrize("prior_dof", [0, 3.01, 4, 1000])
def test_proper_priors_are_accepted(prior_dof):
    check_prior_dof(prior_dof, 4)


def test_impossible_input_is_refused():
    with pytest.raises(ValueError, match="scatter of the latents must be finite"):
        expected_precision(np.full((2, 2), np.nan), 10, 2)
    with pytest.raises(ValueError, match="n_images must be an integer >= 1, got 0"):
        expected_precision(np.eye(2), 0, 2)
    with pytest.raises(ValueError, match="loaded scatter of the latents must be positive definite"):
        expected_precision(np.zeros((2, 2)), 10, 0)
    posterior = WishartPosterior.from_scatter(np.eye(2), 10, 2)
    with pytest.raises(ValueError, match="basis energy C must be finite"):
        wishart_part(posterior, np.eye(2), np.diag([1.0, np.inf]), 10)
