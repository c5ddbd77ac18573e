"""Machines that round differently: every site computes slightly other parameters, and all agree."""

import itertools

import numpy as np
import pytest

from anamorph.federation import VerificationError
from anamorph.federation.site import replica
from anamorph.fitting.em import Fit
from tests.federation.attacks.cheating import log_of
from tests.federation.conftest import fit, objective_error, sites


def round_differently(monkeypatch, noise):
    """Let the copy of the fit at every site round its bases and its mean in its own way."""
    seeds = itertools.count()

    class RoundingFit(Fit):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.random = np.random.default_rng(next(seeds))

        def _rounded(self, values):
            factor = 1 + noise * self.random.standard_normal(values.shape)
            return (values * factor).astype(values.dtype)

        def _with_basis(self, parameters, name, basis):
            return super()._with_basis(parameters, name, self._rounded(basis))

        def _mean_direction(self, parameters, centring):
            return self._rounded(super()._mean_direction(parameters, centring))

    monkeypatch.setattr(replica, "Fit", RoundingFit)


def parameters_of(transport, name):
    """Return the digests of the parameters that a site answered with."""
    return [line["parameters"] for line in log_of(transport, name, "answered")]


@pytest.mark.parametrize("latents", ["joint", "separate"])
def test_a_consortium_of_different_machines_completes(tmp_path, monkeypatch, latents):
    components = {"latents": latents, "n_components": 2 if latents == "joint" else (1, 1)}
    expected, _ = fit(sites(tmp_path / "same"), n_iter=5, **components)
    round_differently(monkeypatch, noise=1e-6)
    transport = sites(tmp_path / "different")
    found, _ = fit(transport, n_iter=5, **components)
    assert objective_error(found, expected) < 1e-4
    digests = [parameters_of(transport, name) for name in transport.names]
    assert all(len(set(own)) > 5 for own in digests)
    last = {own[-1] for own in digests}
    assert len(last) == len(transport.names)  # they did compute with different parameters
    for name in transport.names:
        assert not log_of(transport, name, "refused")


def test_differences_beyond_rounding_are_told(tmp_path, monkeypatch):
    round_differently(monkeypatch, noise=0.1)
    with pytest.raises(VerificationError, match=r"follow from the totals|from the same totals"):
        fit(sites(tmp_path), n_iter=5)
