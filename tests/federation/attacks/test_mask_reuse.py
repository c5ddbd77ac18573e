"""A coordinator that wants a mask to be used twice: the difference would be a site's sums."""

import numpy as np
import pytest

from anamorph.federation import SiteAgent
from tests.federation.attacks.cheating import Meddling
from tests.federation.conftest import LENIENT, Wire, fit, sites


class Eavesdropper:
    """Keeps every message to one site and every answer of it."""

    def __init__(self, inner, name="site1"):
        self.inner, self.name, self.lines = inner, name, []

    names = property(lambda self: self.inner.names)

    def call(self, messages, timeout):
        replies = self.inner.call(messages, timeout)
        if self.name in messages:
            self.lines.append((messages[self.name], replies.answers[self.name]))
        return replies


def messages_of(lines, task):
    return [(sent, got) for sent, got in lines if sent["do"] == task]


@pytest.fixture
def stopped_in_the_middle(tmp_path):
    """A site in the middle of a question, whose blocks have left, and all that was said to it."""
    transport = sites(tmp_path)
    ear = Eavesdropper(transport)

    def tell(name, message):
        if message["do"] == "total" and len(messages_of(ear.lines, "block")) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(Meddling(ear, tell))
    return transport, ear.lines


def test_a_block_is_sent_again_but_never_made_again(stopped_in_the_middle):
    transport, lines = stopped_in_the_middle
    sent, got = messages_of(lines, "block")[-1]
    again = transport._agents["site1"].handle(sent)
    np.testing.assert_array_equal(again["block"], got["block"])


def test_a_question_is_asked_once(stopped_in_the_middle):
    transport, lines = stopped_in_the_middle
    agent = transport._agents["site1"]
    asked, _ = messages_of(lines, "ask")[-1]
    assert agent.handle(asked)["error"] == "StaleStepError"
    # After a refusal not even a block of the old answer is sent.
    assert agent.handle(messages_of(lines, "block")[-1][0])["error"] == "StaleStepError"


@pytest.mark.parametrize("change", ["same", "restarted", "restored"])
def test_an_old_step_is_never_taken_again(stopped_in_the_middle, change):
    transport, lines = stopped_in_the_middle
    agent = transport._agents["site1"]
    if change == "restarted":
        agent = SiteAgent(
            "site1", agent.images, LENIENT, agent.folder, agent.identity, n_threads=1, secret=b""
        )
    joined, _ = messages_of(lines, "join")[-1]
    agent.handle(joined)
    restored, _ = messages_of(lines, "restore")[-1]
    assert agent.handle(restored)["error"] == "StaleStepError"
    if change == "restored":
        last = messages_of(lines, "ask")[-1][0]["step"]
        assert "offer" in agent.handle(restored | {"step": last + 1})
    for sent, _ in messages_of(lines, "ask"):
        reply = agent.handle(sent)
        assert reply["error"] in ("StaleStepError", "SignatureError", "VerificationError")


@pytest.mark.parametrize(
    "step", [1e300, 5.0, True, "5", None, -1, 0, 2**41, 2**64, 10**400, float("nan"), [5], {}]
)
@pytest.mark.parametrize("task", ["ask", "block", "total", "restore"])
def test_steps_are_integers_within_reason(stopped_in_the_middle, step, task):
    transport, lines = stopped_in_the_middle
    sent = (
        next(sent for sent, _ in lines if sent["do"] == task)
        if task != "total"
        else {"do": "total", "fit": "x", "index": 0, "block": np.zeros(1, np.uint64)}
    )
    reply = transport._agents["site1"].handle(sent | {"step": step})
    assert reply["error"] == "MessageError"
    assert "step" in reply["text"]


def test_another_fit_is_not_answered_with_the_masks_of_this_one(stopped_in_the_middle):
    transport, lines = stopped_in_the_middle
    sent, _ = messages_of(lines, "block")[-1]
    reply = transport._agents["site1"].handle(sent | {"fit": "another"})
    assert reply["error"] == "StaleStepError"


def test_no_key_and_no_masked_block_ever_repeats(tmp_path):
    wire = Wire()
    transport = sites(tmp_path, watch=wire)
    fit(transport, n_iter=2)
    fit(transport, n_iter=3)  # resumed from the start: the same questions, with other masks
    keys, blocks = [], []
    for _, sent, answered in wire.messages():
        if "offer" in answered:
            keys += [answered["offer"]["key"], answered["offer"]["commitment"]]
        if sent["do"] == "block":
            blocks.append(answered["block"].tobytes())
    assert len(set(keys)) == len(keys) > 50
    assert len(set(blocks)) == len(blocks) > 50


def test_a_key_of_another_step_is_refused(tmp_path):
    old = {}

    def tell(name, message):
        if message["do"] != "ask":
            return None
        old.setdefault("offers", message["offers"])
        if message["question"] == "shape_derivatives":
            return message | {"offers": message["offers"] | {"site2": old["offers"]["site2"]}}
        return None

    from anamorph.federation import SignatureError

    with pytest.raises(SignatureError, match="claims to come from site2 is not signed by it"):
        fit(Meddling(sites(tmp_path), tell))
