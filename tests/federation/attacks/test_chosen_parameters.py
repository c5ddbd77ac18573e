"""A coordinator that wants sums under a mean and bases of its own choice.

With crafted parameters, sums are moments of the images, from which they follow one by one. Sites
compute their parameters themselves, from totals that they verify: neither parameters, nor totals,
nor the order of questions, nor starting latents are the coordinator's to choose.
"""

import numpy as np
import pytest

from anamorph.federation import (
    PolicyError,
    VerificationError,
    federated_statistics,
)
from anamorph.federation.coordinator.round import Round
from anamorph.federation.masking.field import subtract_from
from anamorph.latents import starting_latents
from tests.federation.attacks.cheating import Gullible, attack, forge_totals, log_of
from tests.federation.conftest import LENIENT, Wire, fit, model, one_agent, sites


def is_stopped(inner, names=("site1", "site2", "site3")):
    """Tell whether every site has stopped the fit, and said so in its log."""
    return all(log_of(inner, name, "stopped") for name in names)


@pytest.mark.parametrize(
    "question", ["moments", "start_latents", "shape_derivatives", "update_latents"]
)
def test_a_forged_total_is_found_out_by_all_sites(tmp_path, monkeypatch, question):
    inner = sites(tmp_path)
    with monkeypatch.context() as patch:
        forge_totals(patch, question)
        with pytest.raises(VerificationError, match="not the sum of the answers"):
            fit(inner)
    assert is_stopped(inner)
    # For good: the same fit is not taken up again, also by a restarted site.
    with pytest.raises(PolicyError, match="was stopped here for good"):
        fit(inner)


def test_two_sites_that_are_shown_different_totals_find_out(tmp_path, monkeypatch):
    monkeypatch.setattr(Round, "_check", lambda *_: None)

    def tell(name, message):
        if message["do"] == "total" and name == "site2":
            return message | {"block": message["block"][::-1].copy()}
        return None

    inner, run = attack(tmp_path, tell)
    with pytest.raises(VerificationError, match="was shown another total"):
        run()
    assert is_stopped(inner)


def test_parameters_cannot_be_sent(tmp_path):
    agent, _ = one_agent(tmp_path)
    reply = agent.handle({"do": "publish", "array": "mean", "start": 0, "values": np.zeros(3)})
    assert reply["error"] == "MessageError"
    assert [line["event"] for line in agent.audit.read()] == ["refused"]


@pytest.mark.parametrize(
    ("instead", "of"),
    [
        ("shape_derivatives", "moments"),
        ("appearance_derivatives", "shape_derivatives"),
        ("shape_derivatives", "appearance_derivatives"),
        ("mean_derivatives", "propose_latents"),
        ("moments", "update_latents"),
    ],
)
def test_questions_come_in_the_order_of_the_algorithm(tmp_path, instead, of):
    def tell(name, message):
        if message.get("question") == of:
            return message | {"question": instead}
        return None

    inner, run = attack(tmp_path, tell)
    with pytest.raises(VerificationError, match=f"{instead} is asked, but {of} comes next"):
        run()
    assert is_stopped(inner)


def test_other_parameters_at_the_coordinator_are_noticed(tmp_path):
    def tell(name, message):
        if message.get("summary") is not None:
            return message | {"summary": 1.01 * message["summary"]}
        return None

    inner, run = attack(tmp_path, tell)
    with pytest.raises(VerificationError, match="not those that follow from the totals"):
        run()
    assert is_stopped(inner)


def test_a_step_that_is_not_due_is_not_taken(tmp_path):
    def tell(name, message):
        if message.get("decisions"):
            return message | {"decisions": [not taken for taken in message["decisions"]]}
        return None

    inner, run = attack(tmp_path, tell)
    with pytest.raises(VerificationError, match="skipped a step that this site"):
        run()
    assert is_stopped(inner)


def test_as_many_components_as_images_are_refused(tmp_path):
    with pytest.raises(PolicyError, match="components"):
        fit(sites(tmp_path), n_components=9)


def test_starting_latents_are_a_secret_of_the_site(tmp_path):
    # The attack knows seed and file names; the sums of the latents must not follow from them.
    wire = Wire()
    transport = sites(tmp_path, watch=wire, secret=b"a secret of the site")
    fit(transport, n_iter=1)
    for name, agent in transport._agents.items():
        guessed = starting_latents(0, agent._holdings.identities, 2)
        drawn = starting_latents(agent._holdings.seed(0), agent._holdings.identities, 2)
        assert np.abs(guessed - drawn).min() > 1e-6, name


def test_a_secret_is_drawn_once_and_kept(tmp_path):
    first, _ = one_agent(tmp_path)
    again, _ = one_agent(tmp_path)
    other, _ = one_agent(tmp_path / "other")
    assert len(first._holdings.secret) == 32
    assert first._holdings.secret == again._holdings.secret != other._holdings.secret
    assert (tmp_path / "secret").stat().st_mode & 0o77 == 0


def test_a_model_of_the_coordinators_making_is_not_analysed(tmp_path):
    transport = sites(tmp_path)
    fitted, _ = fit(transport)
    federated_statistics(fitted, transport, transport.names)
    crafted = model(n_iter=1).fit(np.random.default_rng(0).normal(size=(13, 12, 10)))
    with pytest.raises(PolicyError, match="took part in no fit that ended in this model"):
        federated_statistics(crafted, transport, transport.names)
    assert log_of(transport, "site1", "refused")


def test_another_seed_is_another_fit(tmp_path):
    transport = sites(tmp_path)
    fit(transport, n_iter=1)
    with pytest.raises(PolicyError, match="1 different fits"):
        fit(transport, n_iter=1, random_state=1)


def test_a_site_that_is_dropped_from_the_total_is_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(Round, "_check", lambda *_: None)
    add_up = Round._added

    def without_site3(self, index, replies, masked):
        total = add_up(self, index, replies, masked)
        if self.binding.question == "transform_latents":
            subtract_from(total, replies["site3"]["block"])
        return total

    monkeypatch.setattr(Round, "_added", without_site3)
    inner = sites(tmp_path)
    monkeypatch.setattr("anamorph.federation.coordinator.sites.Bounds", Gullible)
    monkeypatch.setattr("anamorph.federation.coordinator.checkpoint.Bounds", Gullible)
    with pytest.raises(VerificationError, match="not the sum of the answers"):
        fit(inner)
    assert is_stopped(inner)


def test_an_honest_fit_is_logged_with_its_parameters(tmp_path):
    transport = sites(tmp_path, LENIENT)
    fit(transport, n_iter=1)
    answered = log_of(transport, "site1", "answered")
    assert [line["question"] for line in answered[:3]] == [
        "moments",
        "start_latents",
        "transform_latents",
    ]
    assert all(len(line["transcript"]) == 64 and len(line["answer"]) == 64 for line in answered)
    assert all(line["parameters"] for line in answered[3:])
    logs = [log_of(transport, name, "answered") for name in transport.names]
    # All sites answered with the same parameters, here to the last bit.
    assert len({tuple(line["parameters"] for line in log) for log in logs}) == 1
