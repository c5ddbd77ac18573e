"""Attacks found by an adversary who read the program: each once worked against unmodified sites."""

import json
import secrets

import numpy as np
import pytest

from anamorph.federation import (
    FederationError,
    Policy,
    PolicyError,
    Terms,
    VerificationError,
    federated_statistics,
    simulated_sites,
    split_images,
)
from anamorph.federation.coordinator.round import Round as CoordinatorRound
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.masking.checksums import digest_of
from anamorph.federation.masking.field import PRIME
from anamorph.federation.masking.fixed_point import from_fixed_point, to_fixed_point
from anamorph.federation.protocol.binding import statement
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.errors import MessageError, StaleStepError
from anamorph.federation.protocol.shared_state import shared_arrays, shared_facts
from anamorph.federation.protocol.sketches import summary
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.federation.site import replica
from anamorph.federation.site.ledger import Ledger
from anamorph.images.collection import open_images
from anamorph.model.generator import Generator
from anamorph.storage.modelfile import parameter_arrays
from tests.federation.attacks.cheating import Meddling, log_of
from tests.federation.attacks.test_influence import lying
from tests.federation.conftest import LENIENT, fit, one_agent, sites, stack
from tests.federation.site.test_agent import GO_ON, away, joining


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
    with pytest.raises(VerificationError, match=r"gradient_squares in the total of .* is negative"):
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


# ---- a returning site


def change_the_step(name, message):
    if message["do"] == "adopt" and message["array"] in ("step", "numbers"):
        values, place = message["values"].copy(), 0 if message["array"] == "step" else 1
        values[place] = 0.01
        return message | {"values": values}
    return message


def test_the_step_of_a_returning_site_is_compared(tmp_path):
    # Beside the objective it vanished, and a site could be given any.
    transport = sites(tmp_path, n_images=17, n_sites=4)
    with pytest.raises(Exception, match="not the one of site"):
        fit(away(transport, change_the_step), terms=GO_ON, n_iter=6)
    assert not log_of(transport, "site4", "adopted")


# ---- messages


@pytest.mark.parametrize("shape", [[], [1e400], [[1]], {}, None, [-1], [2**70, 2**70], "x"])
def test_odd_shapes_in_a_header_are_refused(shape):
    header = json.dumps({"do": {"\0reference": "bytes", "shape": shape}}).encode()
    with pytest.raises(MessageError, match="cannot be read"):
        unpack(b"anamorph" + len(header).to_bytes(8, "little") + header)


def test_a_header_of_many_lists_is_not_read():
    # It takes a hundred times its size in memory.
    header = b'{"do": [' + b"[]," * 2**21 + b"[]]}"
    with pytest.raises(MessageError, match="at most 4194304 bytes"):
        unpack(b"anamorph" + len(header).to_bytes(8, "little") + header)


def test_refusals_do_not_repeat_all_that_was_sent(tmp_path):
    agent, identities = one_agent(tmp_path)
    message = joining(agent, identities)
    message["settings"]["layout"] = {"n_latents": 10**4000, "n_appearance": 1, "n_shape": 1}
    message["settings"]["layout"] |= {"first_shape": 0}
    reply = agent.handle(unpack(pack(message)))
    assert len(reply["text"]) <= 1000
    assert max(len(str(line)) for line in agent.audit.read()) < 1500


def test_a_question_after_the_end_of_a_fit_is_named(tmp_path):
    inner = sites(tmp_path)
    recorded = Recorded(inner)
    fit(recorded)
    agent, asked = inner._agents["site1"], recorded.last("ask")
    for step in (1, 2):
        reply = agent.handle(asked | {"step": asked["step"] + step, "checksums": None})
        assert reply["error"] == "StaleStepError"


# ---- values that do not fit


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300, -1e300, 8.0, -8.0])
def test_no_value_of_a_site_makes_its_encoding_fail(value):
    # An error would tell that the values of one site do not fit.
    residues = to_fixed_point(np.array([0.5, value, -0.5]), 1)
    assert residues.max() < PRIME
    np.testing.assert_allclose(from_fixed_point(residues, 1)[[0, 2]], [0.5, -0.5])


def test_infinite_intensities_are_named_before_a_fit(tmp_path):
    images = stack(7)
    images[2, 3, 3] = np.inf
    agent, _ = one_agent(tmp_path, images=images)
    assert "infinite values" in agent.handle({"do": "describe"})["text"]


def test_intensities_beyond_single_precision_are_named(tmp_path):
    images = open_images(1e30 * stack(), "gaussian")
    inner = simulated_sites(images, split_images(13, 3), tmp_path, LENIENT, n_threads=1)
    with pytest.raises(MessageError, match="smaller scale"):
        fit(inner)


@pytest.mark.parametrize("weight", ["1e15", "1e300"])
def test_weights_that_are_too_large_are_named(tmp_path, weight):
    inner = sites(tmp_path, columns={"weight": [weight] * 13})
    model, _ = fit(inner, n_iter=1)
    with pytest.raises(MessageError, match="weights must be from 0 to"):
        federated_statistics(model, inner, inner.names, weight_by="weight")


# ---- iterations that are done again


def test_iterations_that_are_done_again_count(tmp_path):
    # With one site that answers differently, each tells K weighted sums more.
    inner = sites(tmp_path)
    repeated = []

    def hear(name, message, answer):
        if message["do"] == "ask" and message["question"] == "mean_derivatives":
            repeated.append(name)
            return {"error": "SiteFailure", "text": "again"}
        return None

    with pytest.raises(PolicyError, match="at most 14 iterations of this fit"):
        fit(Meddling(inner, hear=hear), terms=Terms(patience=0.0, retries=30), n_iter=2)
    assert len(repeated) == 3 * 14


# ---- sites that are told different things


def equivocating(inner, monkeypatch, question):
    """Let a colluding site commit to two random numbers, and show each to some of the others.

    Each group of sites then has a challenge of its own, and draws its own witnesses. The colluder
    signs checksums that make sums of both come out right.
    """
    colluder, favoured = inner._agents["site4"], "site1"
    state = {}

    def other_offer(step, offer):
        state.setdefault(step, secrets.token_bytes(32))
        commitment = digest_of(state[step])
        facts = (colluder._fit.plan.name, step, offer["key"], commitment)
        signature = colluder.identity.sign(statement("key", "site4", *facts))
        return {"key": offer["key"], "commitment": commitment, "signature": signature}

    def tell(name, message):
        task, step = message["do"], message.get("step")
        if task == "ask" and name == favoured and message["question"] == question:
            changed = other_offer(step, message["offers"]["site4"])
            return message | {"offers": message["offers"] | {"site4": changed}}
        if task == "reveal" and name == favoured and step in state:
            given = message["totals"]["site4"] | {"number": state[step]}
            return message | {"totals": message["totals"] | {"site4": given}}
        if name == favoured and message.get("masked") and step - 1 in state:
            return message | {"masked": {}}  # another witness than the one that it has drawn
        return None

    monkeypatch.setattr(CoordinatorRound, "_check", lambda *_: None)
    return Meddling(inner, tell)


def test_sites_with_different_challenges_find_out(tmp_path, monkeypatch):
    # Signatures of checksums and verdicts did not say under which challenge: a witness drawn by one
    # group of sites, and confirmed by another, let a forged total pass at some of them.
    inner = sites(tmp_path, n_images=16, n_sites=4)
    with pytest.raises(VerificationError, match="was shown other random numbers than this site"):
        fit(equivocating(inner, monkeypatch, "mean_derivatives"))
    assert log_of(inner, "site1", "stopped")


def test_sites_that_are_asked_for_different_groups_share_no_masks(tmp_path):
    # The total of one group at one site and another at the others, less an honest total, is about
    # that site alone.
    diagnoses = (["case", "control"] * 8)[:13]
    inner = sites(tmp_path, columns={"diagnosis": diagnoses})
    model, _ = fit(inner, n_iter=1)

    def tell(name, message):
        if message["do"] == "ask" and name == "site1":
            return message | {"arguments": message["arguments"] | {"groups": ["control"]}}
        return None

    cheat = Meddling(inner, tell)
    with pytest.raises(FederationError, match="is not signed by it"):
        federated_statistics(model, cheat, inner.names, ["case"], group_by="diagnosis")
    assert log_of(inner, "site1", "refused")
    released = [line["question"] for line in log_of(inner, "site1", "answered")]
    assert "statistics" not in released


def undecided(monkeypatch):
    """Let every decision be one that rounding could turn: a colluding site can arrange that."""
    monkeypatch.setattr(replica, "falls", lambda before, after, share: share == 0.0)


def test_a_decision_that_rounding_could_turn_is_the_same_for_all_sites(tmp_path, monkeypatch):
    # Sites at different parameters, and all at the same: the difference is about one of them.
    undecided(monkeypatch)

    def tell(name, message):
        if message.get("decisions") and name == "site1":
            return message | {"decisions": [not taken for taken in message["decisions"]]}
        return None

    honest = sites(tmp_path / "honest")
    fit(honest)  # all follow the coordinator
    inner = sites(tmp_path / "attacked")
    with pytest.raises(FederationError, match=r"not signed by it|comes next in this fit|totals"):
        fit(Meddling(inner, tell))
    assert log_of(inner, "site1", "refused") + log_of(inner, "site2", "refused")


def test_decisions_on_no_step_are_refused(tmp_path):
    def tell(name, message):
        if message["do"] == "ask" and message["question"] == "transform_latents":
            return message | {"decisions": [True]}
        return None

    inner = sites(tmp_path)
    with pytest.raises(VerificationError, match="decides on steps that this fit does not try"):
        fit(Meddling(inner, tell))


def test_a_site_takes_over_no_state_that_it_has_itself(tmp_path):
    # It would compute with one that differs from that of the others by what passes for rounding.
    inner = sites(tmp_path)
    recorded = Recorded(inner)
    fit(recorded)
    agent, joined = inner._agents["site1"], recorded.last("join")
    agent.handle(joined)
    kept = agent._fit.store.load(3, len(agent.images))
    at = {"fit": joined["fit"]}
    for array, values in shared_arrays(kept.state).items():
        block = {"do": "adopt", **at, "array": array, "start": 0, "values": values.reshape(-1)}
        assert agent.handle(block) == {}
    facts = shared_facts(kept.state, kept.transcript, kept.norms, kept.roster)
    reply = agent.handle({"do": "adopted", **at, "iteration": 3, "facts": facts})
    assert reply["error"] == "MessageError"
    assert "has that state itself" in reply["text"]


def test_a_site_comes_back_a_few_times_only(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", Policy(roster_changes=2))
    ledger.begin("fit1", {"site1": 5}, 5, "plan")
    ledger.adopt("fit1")
    ledger.adopt("fit1")
    for again in (ledger, Ledger(tmp_path / "ledger.jsonl", Policy(roster_changes=2))):
        with pytest.raises(StaleStepError, match="has come back to fit1 2 times"):
            again.adopt("fit1")
