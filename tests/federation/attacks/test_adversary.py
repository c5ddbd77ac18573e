"""Attacks found by an adversary who read the program: each once worked against unmodified sites."""

import pytest

from anamorph.federation import FederationError, Policy, VerificationError, federated_statistics
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.sketches import summary
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.model.generator import Generator
from anamorph.storage.modelfile import parameter_arrays
from tests.federation.attacks.cheating import Meddling, log_of
from tests.federation.attacks.test_influence import lying
from tests.federation.conftest import fit, sites


class Recorded(Meddling):
    """An honest coordinator whose messages to the first site are kept."""

    def __init__(self, inner):
        super().__init__(inner, self._keep)
        self.sent = []

    def _keep(self, name, message):
        if name == "site1":
            self.sent.append(unpack(pack(message)))

    def last(self, task):
        return [message for message in self.sent if message["do"] == task][-1]


# ---- one name, many fits


@pytest.mark.parametrize("change", ["seed", "settings"])
def test_a_fit_is_not_begun_again_with_another_seed_or_other_settings(tmp_path, change):
    # Otherwise one fit, of which the policy allows one, is as many as there are seeds, and
    # settings change between iterations as the coordinator likes.
    inner = sites(tmp_path)
    recorded = Recorded(inner)
    fit(recorded)
    message = recorded.last("join")
    if change == "seed":
        message["seed"] += 1
    else:
        message["settings"]["decimation"] *= 0.5
    agent = inner._agents["site1"]
    reply = agent.handle(message)
    assert reply["error"] == "PolicyError"
    assert "other settings or another seed" in reply["text"]
    assert log_of(inner, "site1", "refused")


def test_an_analysis_cannot_take_the_name_of_a_fit(tmp_path):
    # It would lift the number of questions that follows from the iterations of the fit.
    inner = sites(tmp_path)
    recorded = Recorded(inner)
    model, _ = fit(recorded)
    joined, agent = recorded.last("join"), inner._agents["site1"]
    reply = agent.handle(
        {
            "do": "open",
            "fit": joined["fit"],
            "step": 1,
            "summary": summary(parameter_arrays(model.generator_.parameters)),
            "roster": sorted(joined["holdings"]),
            "holdings": joined["holdings"],
        }
    )
    assert reply["error"] == "PolicyError"
    assert "as an analysis" in reply["text"]
    assert agent._ledger._fits[joined["fit"]].n_iter == joined["n_iter"]


# ---- sites that agree, and are not asked


def test_sites_that_are_not_asked_do_not_count(tmp_path):
    inner = sites(tmp_path, Policy(minimum_images=1, images_per_component=5), 16, 4)
    recorded = Recorded(inner)
    fit(recorded, n_components=3, n_iter=1)
    agent, restored = inner._agents["site1"], recorded.last("restore")
    message = restored | {"step": 10**6, "iteration": 1, "roster": ["site1", "site2", "site3"]}
    reply = agent.handle(message)  # 12 images for 3 components
    assert reply["error"] == "TooFewImagesError"
    assert "5 images per component" in reply["text"]


# ---- a forged total that no witness has confirmed


def test_a_total_that_no_witness_confirmed_leaves_no_state(tmp_path, monkeypatch):
    # A state that is on the disk can be restored, without the verdicts of any witness.
    inner = sites(tmp_path, n_images=16, n_sites=4)
    told_to_settle, asked = [], []
    # It asks the next question, without `settle` and `keep`.
    monkeypatch.setattr(FederatedSites, "complete", lambda own: told_to_settle.append(own.step))

    def stop_at_block(name, message):
        """Let a question that follows an iteration be asked, and withhold the verdicts."""
        if message["do"] == "ask" and len(told_to_settle) > 1:  # the first is before iterations
            asked.append(name)
        if message["do"] == "block" and asked:
            return message | {"verdicts": {}}
        return None

    with pytest.raises(VerificationError, match="which was drawn, is missing"):
        fit(Meddling(inner, stop_at_block))
    assert asked
    for agent in inner._agents.values():
        folder = next((agent.folder / "fits").iterdir())
        assert not list(folder.glob("state-*"))


# ---- bounds that a site moves


def test_a_site_cannot_raise_bounds_without_end(tmp_path, monkeypatch):
    # Norms of the last total give the next bound: a site that always claims the most raises it
    # tenfold in every iteration.
    inner = sites(tmp_path)
    lying(inner, "site2", monkeypatch, "gradient_squares", factor=9.0)
    shares, honest = [], Bounds.limits

    def limits(self, question, parameters):
        given = honest(self, question, parameters)
        if question == "appearance_derivatives":
            most, *_ = self._extremes(Generator(self._settings, parameters), question)
            shares.append(given.gradient / most)
        return given

    monkeypatch.setattr(Bounds, "limits", limits)
    fit(inner, n_iter=5)
    assert max(shares) < 20.1


def test_negative_squares_are_noticed(tmp_path, monkeypatch):
    # They would clip what honest images contribute to nothing.
    inner = sites(tmp_path)
    lying(inner, "site2", monkeypatch, "gradient_squares", factor=-5.0)
    with pytest.raises(VerificationError, match="gradient_squares in the total of .* is negative"):
        fit(inner)


# ---- statistics


def test_another_name_of_a_group_is_no_other_question(tmp_path):
    # The same sums, over all sites and over all but one, are those of the one.
    inner = sites(tmp_path, Policy(minimum_images=1), 16, 4)
    model, _ = fit(inner, n_iter=1)
    federated_statistics(model, inner, inner.names, ["all"])
    with pytest.raises(FederationError, match="this was answered for site1, site2, site3, site4"):
        federated_statistics(model, inner, inner.names[:3], ["everybody"])
    assert log_of(inner, "site1", "refused")


def test_a_thousand_groups_are_refused_at_once(tmp_path):
    inner = sites(tmp_path)
    model, _ = fit(inner, n_iter=1)
    groups = [str(number) for number in range(1000)]
    with pytest.raises(FederationError, match="at most 100 groups"):
        federated_statistics(model, inner, inner.names, groups)
