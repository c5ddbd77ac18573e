"""A site that lies about how many images it has, or answers numbers that no images give."""

import numpy as np
import pytest

from anamorph.federation import PolicyError, SitesLostError, VerificationError
from anamorph.federation.masking.field import PRIME
from anamorph.federation.protocol.agreement import signed_holdings
from tests.federation.attacks.cheating import Gullible, Meddling, log_of
from tests.federation.conftest import fit, objective_error, sites


def test_a_site_that_claims_a_million_images_is_refused_by_the_others(tmp_path, monkeypatch):
    inner = sites(tmp_path)
    liar = inner._agents["site2"]
    claim = signed_holdings(liar.identity, 1_000_000, liar._intensity_exponent())

    def hear(name, message, answer):
        if message["do"] == "describe" and name == "site2":
            return answer | {"holdings": claim}
        return None

    def tell(name, message):  # the site itself plays along
        if message["do"] == "join" and name == "site2":
            truth = signed_holdings(liar.identity, len(liar.images), claim["exponent"])
            return message | {"holdings": message["holdings"] | {"site2": truth}}
        return None

    with pytest.raises(PolicyError, match="site2"):
        fit(Meddling(inner, tell, hear))
    assert log_of(inner, "site1", "refused")


def test_counts_are_fixed_when_a_fit_begins(tmp_path):
    inner = sites(tmp_path)
    fit(inner, n_iter=1)
    holdings = {
        name: signed_holdings(agent.identity, 6, agent._intensity_exponent())
        for name, agent in inner._agents.items()
    }

    def tell(name, message):
        if message["do"] == "join":
            own = message["holdings"][name]
            return message | {"holdings": holdings | {name: own}}
        return None

    with pytest.raises(PolicyError, match="began with other numbers of images"):
        fit(Meddling(inner, tell))


def lying(inner, name, monkeypatch, field, factor):
    """Let a site add something to a sum before it masks it."""
    agent = inner._agents[name]
    from anamorph.federation.site.fit import SiteFit

    honest = SiteFit.answer

    def answer(self, question, limits):
        given = honest(self, question, limits)
        if self.cohort.images is agent._fit.cohort.images and field in given.schema.shapes:
            given._numbers[field] = (
                given._numbers[field]
                + factor * self._bounds.of_fields(question.name, limits, given.schema)[field]
            )
        return given

    monkeypatch.setattr(SiteFit, "answer", answer)


@pytest.mark.parametrize("field", ["gradient", "latent_scatter", "log_likelihood", "total"])
def test_a_total_beyond_what_images_add_up_to_is_refused(tmp_path, monkeypatch, field):
    inner = sites(tmp_path)
    lying(inner, "site2", monkeypatch, field, factor=30.0)
    with pytest.raises(VerificationError, match=f"{field} in the total of .* 13 images can add"):
        fit(inner)
    # Sites find it out themselves, not only the coordinator.


def test_sites_find_such_a_total_too(tmp_path, monkeypatch):
    inner = sites(tmp_path)
    lying(inner, "site2", monkeypatch, "gradient", factor=30.0)
    monkeypatch.setattr("anamorph.federation.coordinator.sites.Bounds", Gullible)
    monkeypatch.setattr("anamorph.federation.coordinator.checkpoint.Bounds", Gullible)
    with pytest.raises(VerificationError, match="more than 13 images can add up to"):
        fit(inner)
    assert all(log_of(inner, name, "stopped") for name in inner.names)


def test_a_wrong_number_of_images_is_noticed(tmp_path, monkeypatch):
    inner = sites(tmp_path)
    lying(inner, "site2", monkeypatch, "n_images", factor=1.0)
    with pytest.raises(VerificationError, match="about 14 images, but 13 were agreed on"):
        fit(inner)


def test_the_site_that_sends_another_answer_than_it_signed_is_named(tmp_path):
    def hear(name, message, answer):
        if message["do"] == "block" and name == "site2":
            block = answer["block"].copy()
            block[3] = (int(block[3]) + 1) % PRIME
            return {"block": block}
        return None

    with pytest.raises(SitesLostError, match=r"^site2: sent another answer than it signed$"):
        fit(Meddling(sites(tmp_path), hear=hear))


def test_honest_contributions_are_far_below_their_bounds(tmp_path, pooled, monkeypatch):
    import anamorph.fitting.cohort as cohort

    shares, honest = [], cohort.shrink

    def shrink(values, limit):
        before = values.copy()
        squares = honest(values, limit)
        if limit:
            assert np.array_equal(before, values)
            shares.append(np.sqrt(squares.max()) / limit)
        return squares

    monkeypatch.setattr(cohort, "shrink", shrink)
    result, _ = fit(sites(tmp_path))
    assert objective_error(result, pooled) < 1e-6
    # Bounds are at most about ten times the largest honest contribution.
    assert 0.02 < np.median(shares) < 0.6
