"""The objective: what each term is, and what leaves it as it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph.fitting.objective import (
    LatentSums,
    approximate_evidence,
    joint_log_probability,
)
from anamorph.latents import expected_precision
from anamorph.model.generator import slack
from tests.latents.random_matrices import random_spd

seeds = st.integers(0, 2**31)


def random_sums(seed, n_components=3, n_images=20):
    generator = np.random.default_rng(seed)
    scatter, covariance, energy, precision = (
        random_spd(generator, n_components, 2.0, scale)
        for scale in (n_images, n_images / 5, 2.0, 1.5)
    )
    sums = LatentSums(n_images, scatter, covariance, float(generator.normal()))
    return sums, energy, precision, generator


@given(seed=seeds)
def test_joint_log_probability_is_a_sum_over_images(seed):
    """F of MODEL.md, image by image: ln p - z'(l1 A + l2 C)z/2, then the bases and the mean."""
    generator = np.random.default_rng(seed)
    latents, values = generator.standard_normal((7, 3)), generator.standard_normal(7)
    precision, energy = random_spd(generator, 3, 1.0), random_spd(generator, 3, 1.0)
    expected = sum(
        value - z @ (0.9 * precision + 0.2 * energy) @ z / 2
        for z, value in zip(latents, values, strict=True)
    )
    expected -= 0.9 * 7 * np.trace(energy) / 2 + 7 * 4.5 / 2
    result = joint_log_probability(
        values.sum(), latents.T @ latents, precision, energy, 4.5, 7, (0.9, 0.2)
    )
    assert result == pytest.approx(expected, rel=1e-12)


@given(seed=seeds)
def test_sums_of_turned_latents_are_turned_sums(seed):
    sums, _, _, generator = random_sums(seed)
    turn = generator.standard_normal((3, 3)) + 2 * np.eye(3)
    latents = generator.standard_normal((20, 3))
    hessians = np.stack([random_spd(generator, 3, 1.0) for _ in range(20)])
    covariances = np.linalg.inv(hessians)
    sums = LatentSums(
        20, latents.T @ latents, covariances.sum(axis=0), np.linalg.slogdet(hessians)[1].sum()
    )
    result = sums.transformed(turn)
    turned, back = latents @ turn.T, np.linalg.inv(turn)
    assert np.allclose(result.scatter, turned.T @ turned)
    assert np.allclose(result.covariance_sum, (turn @ covariances @ turn.T).sum(axis=0))
    expected = np.linalg.slogdet(back.T @ hessians @ back)[1].sum()
    assert result.log_determinant_sum == pytest.approx(expected, abs=1e-8)


@given(seed=seeds, angle=st.floats(0, 6.3))
def test_rotating_the_latents_changes_no_evidence(seed, angle):
    """With a prior that knows no direction."""
    sums, energy, _, _ = random_sums(seed)
    turn = np.eye(3)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    values = [
        approximate_evidence(-100.0, some, matrix, 2.0, (0.9, 0.2), 3.0)
        for some, matrix in ((sums, energy), (sums.transformed(turn), turn @ energy @ turn.T))
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@given(seed=seeds)
def test_scaling_the_latents_is_neither_gain_nor_loss_without_prior(seed):
    """Maximum likelihood of A, no penalty on bases: z and W are known only up to a scale."""
    sums, _, _, _ = random_sums(seed)
    nothing = np.zeros((3, 3))
    values = [
        approximate_evidence(-100.0, some, nothing, 2.0, (1.0, 0.0), 0.0)
        for some in (sums, sums.transformed(3 * np.eye(3)))
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@given(seed=seeds)
def test_evidence_rises_with_the_log_likelihood_and_falls_with_uncertainty(seed):
    sums, energy, _, _ = random_sums(seed)

    def evidence(log_likelihood, log_determinant):
        changed = replace(sums, log_determinant_sum=log_determinant)
        return approximate_evidence(log_likelihood, changed, energy, 2.0, (0.9, 0.2), 3.0)

    base = evidence(-100.0, 10.0)
    assert evidence(-99.0, 10.0) - base == pytest.approx(1.0)
    assert evidence(-100.0, 12.0) - base == pytest.approx(-1.0)


@given(seed=seeds)
def test_without_uncertainty_the_evidence_of_a_is_that_of_maximum_likelihood(seed):
    """nu0 = 0, S = 0: F with A at its maximum, N ln|A| / 2 added, up to the loading of A."""
    sums, energy, _, _ = random_sums(seed)
    sums = replace(sums, covariance_sum=np.zeros((3, 3)), log_determinant_sum=0.0)
    precision = expected_precision(sums.scatter, 20, 0.0)
    joint = joint_log_probability(-100.0, sums.scatter, precision, energy, 2.0, 20, (1.0, 0.2))
    expected = joint + 20 * np.linalg.slogdet(precision)[1] / 2
    result = approximate_evidence(-100.0, sums, energy, 2.0, (1.0, 0.2), 0.0)
    assert result == pytest.approx(expected, rel=1e-9)


def test_slack_is_what_float32_leaves_uncertain():
    assert 0 < slack(1e6) < 1e-6 * 1e6
    assert slack(-5.0) == slack(5.0)
    assert np.array_equal(slack(np.array([-2.0, 0.0])), [slack(2.0), 0.0])
