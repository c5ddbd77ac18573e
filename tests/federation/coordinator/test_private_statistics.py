"""Differentially private statistics across sites: close to the exact ones if the noise is small."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph.federation import FederationError, Policy, federated_statistics, privacy_terms
from anamorph.federation.site import private_sums
from tests.federation import conftest
from tests.federation.conftest import model, stack

pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")

N_IMAGES = 13
GENEROUS = Policy(minimum_images=1, epsilon_per_analysis=10.0, epsilon_per_year=10.0)


def fitted_at(folder, policy=GENEROUS):
    """Return sites, and the model that they have fitted."""
    transport = conftest.sites(folder, policy, n_images=N_IMAGES)
    return transport, conftest.fit(transport, n_iter=2)[0]


def test_without_noise_statistics_are_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(private_sums, "discrete_gaussian", lambda variance: 0)
    transport, fitted = fitted_at(tmp_path)
    exact = federated_statistics(fitted, transport, transport.names)[0]
    terms = privacy_terms(fitted, 1.0, clip=20.0)
    found = federated_statistics(fitted, transport, transport.names, privacy=terms)[0]
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-4)
    np.testing.assert_allclose(found.covariance, exact.covariance, atol=1e-2)
    assert found.n_images == N_IMAGES
    assert found.mean_noise > 1


def test_noise_is_as_large_as_it_says(tmp_path):
    transport, fitted = fitted_at(tmp_path)
    exact = federated_statistics(fitted, transport, transport.names)[0]
    terms = privacy_terms(fitted, 2.0, clip=20.0)
    found = federated_statistics(fitted, transport, transport.names, privacy=terms)[0]
    size = found.n_images / N_IMAGES
    errors = np.abs(size * found.mean - exact.mean) / (size * found.mean_noise)
    assert 0 < errors.max() < 6


def test_the_default_bound_is_public_and_clips_few():
    fitted = model(n_iter=2).fit(stack(N_IMAGES))
    terms = privacy_terms(fitted, 1.0)
    norms = np.linalg.norm(fitted.transform(stack(N_IMAGES)), axis=1)
    assert np.mean(norms > terms.clip) < 0.25
    assert terms.clip < 3 * norms.max()


def test_a_year_is_soon_spent(tmp_path):
    policy = replace(GENEROUS, epsilon_per_analysis=1.0, epsilon_per_year=1.2)
    transport, fitted = fitted_at(tmp_path, policy)
    terms = privacy_terms(fitted, 1.0)
    federated_statistics(fitted, transport, transport.names, privacy=terms)
    with pytest.raises(FederationError, match=r"privacy loss of a year would be 1\.\d+"):
        federated_statistics(fitted, transport, transport.names, privacy=terms)
