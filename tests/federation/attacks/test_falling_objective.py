"""A colluding site that moves bounds: it claims larger latents, and the objective falls.

The bound on latents follows from the last total of their squares. A site that claims the most that
it may raises it several times over in every iteration, and with it what it may do to the bases. F
falls by that, which was only logged; to hide it, the site lies about the log-likelihood.
"""

import numpy as np
import pytest

from anamorph.federation import VerificationError
from anamorph.federation.site.fit import SiteFit, most_fall
from tests import simulated
from tests.federation.attacks.cheating import log_of
from tests.federation.conftest import fit, model, sites


def colluding(inner, monkeypatch, latents, log_likelihood=0.0, first=1):
    """Let a site claim larger squares of latents, and better steps, than it has.

    Parameters
    ----------
    latents : float
        Claimed squares of latents, as a share of what bounds allow one image.
    log_likelihood : float
        Added to the log-likelihood, as a share of what bounds allow all images of the site.
    first : int
        Iteration from which on it lies.
    """
    agent, honest, n_updates = inner._agents["site2"], SiteFit.answer, [0]

    def answer(self, question, limits):
        given = honest(self, question, limits)
        if self.cohort.images is not agent._fit.cohort.images:
            return given
        bounds = self._bounds.of_fields(question.name, limits, given.schema)
        numbers = given._numbers
        n_updates[0] += question.name == "update_latents"
        if n_updates[0] < first:
            return given
        if question.name == "update_latents":
            claimed = latents * bounds["latent_scatter"] * np.eye(2).reshape(-1)
            numbers["latent_scatter"] = numbers["latent_scatter"] + claimed
        if question.name == "shape_derivatives":
            lie = log_likelihood * len(agent.images) * bounds["log_likelihood"]
            numbers["log_likelihood"] = numbers["log_likelihood"] + lie
        return given

    monkeypatch.setattr(SiteFit, "answer", answer)


@pytest.mark.parametrize(("latents", "first"), [(3.0, 1), (3.0, 4), (0.3, 1)])
def test_a_site_that_raises_the_bound_on_latents_is_noticed(tmp_path, monkeypatch, latents, first):
    inner = sites(tmp_path)
    colluding(inner, monkeypatch, latents, first=first)
    with pytest.raises(VerificationError, match="the objective fell from"):
        fit(inner, n_iter=8)
    for name in inner.names:
        (line,) = log_of(inner, name, "stopped")
        assert "honest fits do not fall so far" in line["text"]


def test_a_log_likelihood_better_than_that_of_a_perfect_model_is_noticed(tmp_path, monkeypatch):
    # The fall could be hidden behind it.
    inner = sites(tmp_path)
    colluding(inner, monkeypatch, 0.3, log_likelihood=1.0)
    with pytest.raises(VerificationError, match="that of a perfect model is"):
        fit(inner, n_iter=8)


def test_what_a_site_hides_behind_the_rise_of_an_honest_fit_is_little(tmp_path, monkeypatch):
    from anamorph.federation.protocol.bounds import Bounds

    bounds, honest = {}, Bounds.limits

    def limits(self, question, parameters):
        given = honest(self, question, parameters)
        if question == "update_latents":
            bounds.setdefault(kind, []).append(given.latent)
        return given

    monkeypatch.setattr(Bounds, "limits", limits)
    kind = "honest"
    fit(sites(tmp_path / kind), n_iter=6)
    kind = "colluding"
    inner = sites(tmp_path / kind)
    colluding(inner, monkeypatch, 0.03)
    fit(inner, n_iter=6)
    assert bounds["colluding"][-1] < 1.5 * bounds["honest"][-1]


@pytest.mark.parametrize("layout", ["joint", "shape", "appearance"])
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "poisson", "categorical"])
def test_honest_fits_are_far_from_the_alarm(likelihood, layout):
    *_, images = simulated.random_problem(likelihood, n_images=13, seed=1, missing=0.1)
    images = np.moveaxis(images, 1, -1)
    fitted = model(latents=layout, likelihood=likelihood, n_iter=15, channel_axis=-1).fit(images)
    objective = np.array(fitted.objective_)
    falls = np.maximum.accumulate(objective) - objective
    assert falls.max() < 0.1 * most_fall(objective.max(), len(images))
