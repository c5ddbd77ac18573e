"""What a site does with messages that are out of order, wrong or not allowed."""

import errno
from dataclasses import asdict, replace

import numpy as np
import pytest

from anamorph.federation import Policy, PolicyError, SitesLostError, Terms
from anamorph.federation.protocol.agreement import signed_holdings
from anamorph.federation.protocol.errors import NAMED
from anamorph.federation.protocol.schemas import MESSAGES
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.model.settings import LatentLayout
from tests import simulated
from tests.federation.conftest import LENIENT, OPEN, Unreliable, fit, one_agent, sites

SETTINGS = replace(
    simulated.random_settings("gaussian", n_components=2),
    n_channels=1,
    layout=LatentLayout.named("joint", 2),
)


def joining(agent, identities, n_images=7, **changes):
    """Return the message that asks a site to join a fit."""
    holdings = {
        one.name: signed_holdings(one, n_images, agent._intensity_exponent()) for one in identities
    }
    message = {"do": "join", "fit": "fit1", "settings": asdict(SETTINGS), "seed": 0, "n_iter": 5}
    return message | {"tol": None, "holdings": holdings} | changes


class Recorder:
    """A transport that keeps all messages to the first site."""

    def __init__(self, inner):
        self.inner, self.sent = inner, []

    names = property(lambda self: self.inner.names)

    def call(self, messages, timeout):
        if "site1" in messages:
            self.sent.append(unpack(pack(messages["site1"])))
        return self.inner.call(messages, timeout)


# ---- what is wrong for one reason


@pytest.mark.parametrize("task", sorted(MESSAGES))
def test_messages_without_what_they_need_are_refused(tmp_path, task):
    agent, _ = one_agent(tmp_path)
    needs = MESSAGES[task]
    if needs:
        reply = agent.handle({"do": task})
        assert reply["error"] == "MessageError"
        assert f"{task} has no" in reply["text"]
    reply = agent.handle({"do": task, "latents": 1, **dict.fromkeys(needs)})
    assert "takes no 'latents'" in reply["text"]


@pytest.mark.parametrize("message", [{}, {"do": None}, {"do": ["ask"]}, {"do": "publish"}])
def test_unknown_tasks_are_refused(tmp_path, message):
    agent, _ = one_agent(tmp_path)
    assert "'do' must be one of describe, join" in agent.handle(message)["text"]


def test_other_images_than_the_fit_is_about_are_refused(tmp_path):
    agent, identities = one_agent(tmp_path, images=np.zeros((7, 9, 9)) + np.arange(9))
    reply = agent.handle(joining(agent, identities))
    assert "images here are gaussian, (9, 9)" in reply["text"]


@pytest.mark.parametrize("settings", [None, {}, 3, {"likelihood_name": "gaussian"}, ["gaussian"]])
def test_settings_that_are_none_are_refused(tmp_path, settings):
    agent, identities = one_agent(tmp_path)
    reply = agent.handle(joining(agent, identities, settings=settings))
    assert reply["error"] == "MessageError"
    assert "settings are not those of a fit" in reply["text"]


def test_a_claim_about_images_that_is_not_signed_is_refused(tmp_path):
    agent, identities = one_agent(tmp_path)
    message = joining(agent, identities)
    message["holdings"]["other0"]["n_images"] = 8
    reply = agent.handle(message)
    assert reply["error"] == "SignatureError"


def test_a_wrong_claim_about_this_site_is_refused(tmp_path):
    agent, identities = one_agent(tmp_path)
    reply = agent.handle(joining(agent, identities, n_images=8))
    assert "not those that were agreed on" in reply["text"]


def test_intensities_in_other_units_are_refused(tmp_path):
    agent, identities = one_agent(tmp_path)
    message = joining(agent, identities)
    message["holdings"]["other1"] = signed_holdings(identities[2], 7, 40)
    assert "bring the images of all sites to one scale" in agent.handle(message)["text"]


def test_a_site_joins_a_fit_that_is_in_order(tmp_path):
    agent, identities = one_agent(tmp_path)
    assert agent.handle(joining(agent, identities)) == {"step": 0, "iterations": []}


def test_what_fails_for_reasons_of_the_site_stays_there(tmp_path, monkeypatch):
    transport = sites(tmp_path)

    def fail(self, **_):
        raise ValueError("patient Miller in /private/folder")

    monkeypatch.setattr("anamorph.fitting.cohort.Cohort.moments", fail)
    with pytest.raises(SitesLostError, match="the log of this site says why") as caught:
        fit(transport, terms=Terms(patience=0.0, retries=0))
    assert "Miller" not in str(caught.value)
    assert "Miller" not in transport._agents["site1"].audit.path.read_text()


def test_a_full_disk_ends_the_question_and_loses_nothing(tmp_path, monkeypatch, pooled):
    transport = sites(tmp_path)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    terms, checkpoint = Terms(patience=0.0, retries=0), tmp_path / "checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr("anamorph.federation.site.states.write_tensors", fail)
        with pytest.raises(SitesLostError, match="No space left"):
            fit(transport, terms=terms, checkpoint=checkpoint)
    result, _ = fit(transport, terms=terms, checkpoint=checkpoint)
    assert result.objective_[-1] == pytest.approx(pooled.objective_[-1], rel=1e-6)


def test_without_an_audit_log_nothing_is_answered(tmp_path, monkeypatch):
    agent, _ = one_agent(tmp_path)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("anamorph.federation.site.append_only.os.write", fail)
    reply = agent.handle({"do": "describe"})
    assert reply.keys() == {"error", "text"}
    assert "audit log" in reply["text"]


# ---- policy


def test_too_few_images(tmp_path):
    agent, identities = one_agent(tmp_path, Policy(minimum_images=8))
    for message in ({"do": "describe"}, joining(agent, identities)):
        reply = agent.handle(message)
        assert reply["error"] == "TooFewImagesError"
        assert "7" not in reply["text"]  # how many there are is not told either


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"components": 1}, "at most 1 components, got 2"),
        ({"iterations": 4}, "at most 4 iterations"),
        ({"voxels": 119}, "at most 119 voxels"),
        ({"images_per_component": 11.0}, "fit at most 1 components"),
        ({"largest_share": 0.3}, "allows one site at most 0.3"),
    ],
)
def test_fits_that_the_policy_does_not_allow(tmp_path, rules, text):
    agent, identities = one_agent(tmp_path, replace(LENIENT, **rules))
    reply = agent.handle(joining(agent, identities))
    assert text in reply["text"]


def test_iterations_are_counted_at_the_site(tmp_path):
    transport = sites(tmp_path)
    fit(transport, n_iter=2)
    transport._agents["site2"]._ledger._policy = replace(LENIENT, iterations=2)
    with pytest.raises(PolicyError, match=r"site2 refuses: .* at most 2 iterations"):
        fit(transport, n_iter=3)


def test_another_fit_needs_leave_also_after_a_restart(tmp_path):
    fit(sites(tmp_path), n_iter=1)
    with pytest.raises(PolicyError, match="1 different fits"):
        fit(sites(tmp_path), n_iter=1, n_components=1)


def test_unmasked_sums_are_refused_unless_allowed(tmp_path):
    with pytest.raises(PolicyError, match="only masked sums leave this site"):
        fit(sites(tmp_path), terms=Terms(is_secure=False))
    fit(sites(tmp_path / "open", OPEN), terms=Terms(is_secure=False), n_iter=1)


def test_a_site_that_has_refused_too_often_answers_nothing(tmp_path):
    agent, _ = one_agent(tmp_path, replace(LENIENT, refusals_per_year=3))
    texts = [agent.handle({"do": "nothing"})["text"] for _ in range(5)]
    assert texts[2] != texts[3] == texts[4]
    assert agent.handle({"do": "describe"})["text"] == texts[4]
    again, _ = one_agent(tmp_path, replace(LENIENT, refusals_per_year=3))
    assert again.handle({"do": "describe"})["text"] == texts[4]


# ---- a site that was away


def away(transport, changed=None):
    """Let the fourth site be away for an iteration, and change what it is sent when it is back."""
    asked = []

    def plan(name, message):
        if message.get("question") == "mean_derivatives" and name == "site1":
            asked.append(message["step"])
            if len(asked) == 2:
                unreliable.away.add("site4")
            if len(asked) == 4:
                unreliable.away.clear()
        return

    class Changing(Unreliable):
        def call(self, messages, timeout):
            messages = {n: changed(n, dict(m)) if changed else m for n, m in messages.items()}
            return super().call(messages, timeout)

    unreliable = Changing(transport, plan)
    return unreliable


GO_ON = Terms(patience=0.0, retries=1, may_go_on_without=True)


def test_a_site_that_was_away_takes_the_state_of_the_others(tmp_path):
    transport = sites(tmp_path, n_images=17, n_sites=4)
    _, told = fit(away(transport), terms=GO_ON, n_iter=6)
    assert told.roster == ("site1", "site2", "site3", "site4")
    events = [line["event"] for line in transport._agents["site4"].audit.read()]
    assert "adopted" in events


def change_the_mean(name, message):
    if message["do"] == "adopt" and message["array"] == "mean":
        values = message["values"].copy()
        values[7] += 1.0
        return message | {"values": values}
    return message


def change_the_transcript(name, message):
    if message["do"] == "adopted":
        return message | {"facts": message["facts"] | {"transcript": "0" * 64}}
    return message


def leave_a_sketch_out(name, message):
    if message["do"] == "confirm":
        sketches = dict(message["sketches"])
        sketches.pop("site2")
        return message | {"sketches": sketches}
    return message


@pytest.mark.parametrize("change", [change_the_mean, change_the_transcript, leave_a_sketch_out])
def test_a_state_of_the_coordinators_making_is_not_taken(tmp_path, change):
    transport = sites(tmp_path, n_images=17, n_sites=4)
    with pytest.raises(Exception, match=r"not the one of site|must confirm a state"):
        fit(away(transport, change), terms=GO_ON, n_iter=6)
    lines = list(transport._agents["site4"].audit.read())
    assert not any(line["event"] == "adopted" for line in lines)
    assert any(line["event"] == "stopped" for line in lines)


# ---- fuzz: whatever arrives, a named refusal leaves


ODD = [
    None, True, -1, 0, 1.5, 2**70, float("nan"), float("inf"), "", "x", "\0", b"", b"x" * 32, [],
    {}, [None], {"site1": None}, {"": 1}, np.zeros(0), np.zeros(3, np.uint64), np.full(3, np.nan),
    np.zeros((2, 2), np.float32), np.full(1000, 2**64 - 1, np.uint64), [[[[]]]], {"a": {"b": {}}},
]  # fmt: skip


def mutated(message, generator):
    """Return a message with one value, somewhere, replaced or removed or added."""
    message = dict(message)
    key = generator.choice(sorted(message))
    kind = generator.integers(4)
    value = message[key]
    if kind == 0 and isinstance(value, dict) and value:
        message[key] = mutated(value, generator)
    elif kind == 1:
        del message[key]
    elif kind == 2:
        message[str(generator.integers(1000))] = ODD[generator.integers(len(ODD))]
    else:
        message[key] = ODD[generator.integers(len(ODD))]
    return message


def test_no_message_makes_a_site_fail(tmp_path):
    transport = sites(tmp_path, replace(LENIENT, refusals_per_year=10**6))
    recorder = Recorder(transport)
    fit(recorder, n_iter=1)
    agent, generator = transport._agents["site1"], np.random.default_rng(0)
    n_refused = 0
    for _ in range(400):
        message = recorder.sent[generator.integers(len(recorder.sent))]
        reply = agent.handle(unpack(pack(mutated(message, generator))))
        if "error" in reply:
            n_refused += 1
            assert reply["error"] in NAMED
            assert reply["error"] != "SiteFailure", message["do"]
            assert "\n" not in reply["text"]
            assert len(reply["text"]) < 400
    assert n_refused > 350
    # And no bit of it has harmed the site: the same fit is resumed.
    fit(transport, n_iter=2)


def ask_for_others(name, message):
    """Have the state confirmed by three sites, and go on with four."""
    if message["do"] == "confirm":
        sketches = {site: message["sketches"][site] for site in ("site1", "site2")}
        return message | {"roster": ["site1", "site2", "site4"], "sketches": sketches}
    return message


def test_a_state_is_taken_for_the_sites_that_have_confirmed_it(tmp_path):
    transport = sites(tmp_path, n_images=17, n_sites=4)
    _, told = fit(away(transport, ask_for_others), terms=GO_ON, n_iter=6)
    assert told.roster == ("site1", "site2", "site3")
    refused = [line["text"] for line in transport._agents["site4"].audit.read() if "text" in line]
    assert any("confirmed by other sites than these" in text for text in refused)
