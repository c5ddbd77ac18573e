"""The prior over z and its start: partitions, whitening, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamorph.latents import (
    NotPositiveDefiniteError,
    draw_latents,
    mode_standard_deviations,
    prior_precision,
    ridge_weights,
    starting_latents,
    whitening,
)
from tests.latents.random_matrices import random_spd

PRECISION = random_spd(np.random.default_rng(1), 3, 1.0)


def test_prior_precision_weighs_precision_and_energy():
    energy = random_spd(np.random.default_rng(2), 3, 1.0)
    expected = 15.2 * PRECISION + 0.8 * energy
    np.testing.assert_allclose(prior_precision(PRECISION, energy, (15.2, 0.8)), expected)


def test_prior_precision_refuses_what_is_not_finite():
    with pytest.raises(ValueError, match="latent precision A must be finite"):
        prior_precision(np.full((3, 3), np.nan), PRECISION, (1.0, 1.0))


def test_mode_standard_deviations_are_those_of_the_inverse():
    expected = np.sqrt(np.diag(np.linalg.inv(PRECISION)))
    np.testing.assert_allclose(mode_standard_deviations(PRECISION), expected, rtol=1e-12)


def test_drawn_latents_have_the_inverse_precision_as_covariance():
    latents = draw_latents(PRECISION, 200_000, np.random.default_rng(3))
    covariance = latents.T @ latents / len(latents)
    # standard errors are sqrt(2 / 200000) = 0.3 %
    np.testing.assert_allclose(covariance @ PRECISION, np.eye(3), atol=0.03)
    np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.03)


def test_drawn_latents_follow_the_generator():
    first, second = (draw_latents(PRECISION, 4, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.any(first == draw_latents(PRECISION, 4, np.random.default_rng(6)))


def test_drawing_needs_a_positive_definite_precision():
    for function in (
        mode_standard_deviations,
        lambda a: draw_latents(a, 1, np.random.default_rng()),
    ):
        with pytest.raises(NotPositiveDefiniteError, match="precision"):
            function(np.diag([1.0, -1.0]))


def test_starting_latents_depend_on_seed_and_identity_only():
    identities = ["sub-01", "sub-02", "sub-03", 4, 5]
    everything = starting_latents(0, identities, 6)
    np.testing.assert_array_equal(starting_latents(0, identities[3:], 6), everything[3:])
    np.testing.assert_array_equal(starting_latents(0, identities[::-1], 6), everything[::-1])
    np.testing.assert_array_equal(starting_latents(0, identities, 4), everything[:, :4])


def test_starting_latents_are_all_different():
    rows = [
        starting_latents(seed, identities, 3)
        for seed, identities in [(0, [1, "1", "11", 11]), (1, [1, "1"]), (10, [1]), (-1, [1])]
    ]
    values = np.concatenate(rows).ravel()
    assert len(np.unique(values)) == 8 * 3


def test_starting_latents_take_numpy_identities():
    np.testing.assert_array_equal(
        starting_latents(0, list(np.arange(3)), 2), starting_latents(0, [0, 1, 2], 2)
    )
    np.testing.assert_array_equal(
        starting_latents(0, list(np.array(["a", "b"])), 2), starting_latents(0, ["a", "b"], 2)
    )


def test_starting_latents_are_standard_normal():
    latents = starting_latents(0, range(10_000), 4)
    moments = latents.T @ latents / len(latents)
    np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(moments, np.eye(4), atol=0.06)
    np.testing.assert_allclose(np.mean(latents**4, axis=0), 3.0, atol=0.5)
    neighbours = np.sum(latents[:-1] * latents[1:], axis=1)
    assert abs(neighbours.mean()) < 0.1


def test_starting_latents_stay_the_same_between_releases():
    expected = [[0.97966653, -0.84449001, 1.36766479], [0.5762598, -0.68389277, 0.35951683]]
    latents = starting_latents(2019, ["sub-01", 7], 3)
    np.testing.assert_allclose(latents, expected, atol=1e-6)


def test_starting_latents_refuse_ambiguous_identities():
    with pytest.raises(ValueError, match="image identities must all be different"):
        starting_latents(0, ["a", "b", "a"], 2)
    with pytest.raises(TypeError, match="must be integers or strings, got float"):
        starting_latents(0, [1.0], 2)


def whitened(latents, sites=1):
    """Return the whitened latents, from sums over sites."""
    parts = np.array_split(latents, sites)
    scatter = sum(part.T @ part for part in parts)
    mean, transform = whitening(scatter, sum(part.sum(axis=0) for part in parts), len(latents))
    return (latents - mean) @ transform.T


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_components=st.integers(1, 10),
    extra_images=st.integers(2, 50),
    log10_scales=st.tuples(st.floats(-6, 6), st.floats(-6, 6)),
    offset=st.floats(-10, 10),
    sites=st.integers(1, 3),
)
def test_whitened_latents_are_centred_and_orthogonal(
    seed, n_components, extra_images, log10_scales, offset, sites
):
    generator = np.random.default_rng(seed)
    n_images = n_components + extra_images
    scales = np.logspace(*log10_scales, n_components)
    latents = scales * (generator.standard_normal((n_images, n_components)) + offset)
    result = whitened(latents, sites)
    np.testing.assert_allclose(result.mean(axis=0), 0.0, atol=1e-7)
    np.testing.assert_allclose(result.T @ result / n_images, np.eye(n_components), atol=1e-6)


def test_whitening_leaves_white_latents_alone():
    latents = whitened(starting_latents(0, range(30), 5))
    np.testing.assert_allclose(whitened(latents), latents, atol=1e-12)


def test_whitening_works_with_the_fewest_images():
    latents = whitened(starting_latents(0, range(6), 5))
    np.testing.assert_allclose(latents.T @ latents, 6 * np.eye(5), atol=1e-10)


def test_whitening_refuses_too_few_images():
    with pytest.raises(ValueError, match=r"at most .* less one, got 5 components for 5 images"):
        whitened(starting_latents(0, range(5), 5))


def test_whitening_refuses_dependent_latents():
    latents = starting_latents(0, range(30), 3)
    latents[:, 2] = latents[:, 0]
    with pytest.raises(ValueError, match="must be linearly independent"):
        whitened(latents)


@pytest.mark.parametrize("constant", [0.0, 0.1])
def test_whitening_refuses_a_constant_latent(constant):
    latents = starting_latents(0, range(30), 3)
    latents[:, 1] = constant
    with pytest.raises(ValueError, match="must vary over images"):
        whitened(latents)


def test_whitening_refuses_impossible_sums():
    with pytest.raises(ValueError, match="scatter of the starting latents must be finite"):
        whitening(np.full((2, 2), np.nan), np.zeros(2), 10)
    with pytest.raises(ValueError, match="sum of the starting latents must be finite"):
        whitening(np.eye(2), [0.0, np.inf], 10)
    with pytest.raises(ValueError, match=r"latent_sum must have shape \(2,\), got \(3,\)"):
        whitening(np.eye(2), np.zeros(3), 10)


def test_regression_finds_latents_from_noisy_features():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 200))
    latents, others = rng.standard_normal((2, 60, 3))
    features = latents @ weights + 0.5 * rng.standard_normal((60, 200))
    products = ridge_weights(features @ features.T, latents)
    found = (others @ weights) @ features.T @ products
    assert np.abs(found - others).mean() < 0.1


def test_a_ridge_chosen_by_few_examples_serves_many():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 40))
    latents, others = rng.standard_normal((2, 600, 3))
    features = latents @ weights + 4 * rng.standard_normal((600, 40))
    new = others @ weights + 4 * rng.standard_normal((600, 40))
    found = new @ features.T @ ridge_weights(features @ features.T, latents)
    # The best linear regression there is, from the model that the examples are drawn from.
    best = new @ np.linalg.solve(weights.T @ weights + 16 * np.eye(40), weights.T)
    assert np.square(found - others).mean() < 1.15 * np.square(best - others).mean()


def test_regression_on_nothing_says_nothing():
    assert not ridge_weights(np.zeros((4, 4)), np.ones((4, 2))).any()
