"""Messages over NVFLARE: who is slow is waited for, who is gone is not."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.collab.api.context import set_call_context

from anamorph.federation.nvflare import transport as module
from anamorph.federation.nvflare.site_program import _readable
from anamorph.federation.nvflare.transport import CollabTransport
from anamorph.federation.protocol.wire import pack, unpack
from tests.federation.conftest import one_agent


class Site:
    """What NVFLARE gives the coordinator's program to call a site by."""

    def __init__(self, name, answer=lambda message: message, is_here=lambda: True):
        self.name, self.answer, self.is_here = name, answer, is_here

    def __call__(self, timeout):
        return self


@pytest.fixture
def aborted():
    """What is set once NVFLARE has aborted the job."""
    return threading.Event()


@pytest.fixture
def reach(monkeypatch, aborted):
    """Return a function that makes a transport to some sites."""
    monkeypatch.setattr(module, "_PULSE", 0.05)
    monkeypatch.setattr(module, "_PATIENCE", 0.5)

    def make(*sites):
        context = SimpleNamespace(clients=list(sites), is_aborted=aborted.is_set)
        set_call_context(context)
        return CollabTransport()

    yield make
    set_call_context(None)


def test_every_site_gets_its_own_message(reach):
    transport = reach(Site("rome"), Site("london"))
    assert transport.names == ("london", "rome")
    replies = transport.call({"london": {"n": 1}, "rome": {"x": np.arange(3.0)}}, 5)
    assert replies.failures == {}
    assert replies.answers["london"] == {"n": 1}
    np.testing.assert_array_equal(replies.answers["rome"]["x"], np.arange(3.0))


def test_a_slow_site_is_waited_for_while_it_says_that_it_is_there(reach):
    pulses = []

    def think(message):
        while len(pulses) < 3:
            time.sleep(0.01)
        return pack(unpack(message) | {"thought": True})

    transport = reach(Site("london", think, lambda: pulses.append(1) or True))
    assert transport.call({"london": {}}, None).answers == {"london": {"thought": True}}


@pytest.mark.parametrize("silence", ["refuses", "hangs"])
def test_a_site_that_is_gone_is_not_waited_for(reach, silence):
    ended = threading.Event()

    def is_here():
        if silence == "hangs":
            ended.wait(30)
        raise ConnectionError

    transport = reach(Site("london", lambda message: ended.wait(30), is_here), Site("rome"))
    replies = transport.call({"london": {}, "rome": {}}, None)
    ended.set()
    assert replies.failures == {"london": "it is gone"}
    assert replies.answers == {"rome": {}}
    assert transport.names == ("rome",)


def test_an_answer_may_take_only_so_long(reach):
    ended = threading.Event()
    transport = reach(Site("london", lambda message: ended.wait(30)))
    replies = transport.call({"london": {}}, 0.2)
    ended.set()
    assert replies.failures == {"london": "no answer in 0.2 s"}


def test_what_is_no_answer_is_a_failure(reach):
    def fail(message):
        raise RuntimeError("no\nconnection")

    transport = reach(Site("london", lambda message: b"nonsense"), Site("paris", fail))
    replies = transport.call({"london": {}, "paris": {}, "rome": {}}, 5)
    assert replies.answers == {}
    assert "not a message of anamorph" in replies.failures["london"]
    assert replies.failures["paris"] == "no connection"
    assert replies.failures["rome"] == "it is not part of this job"


def test_nobody_is_blamed_for_a_job_that_was_aborted(reach, aborted):
    ended = threading.Event()
    transport = reach(Site("london", lambda message: ended.wait(30)))
    aborted.set()
    replies = transport.call({"london": {}}, None)
    ended.set()
    assert replies.failures == {"london": "the job was aborted"}
    assert transport.names == ("london",)


def test_a_message_that_cannot_be_read_is_refused_and_logged(tmp_path):
    agent, _ = one_agent(tmp_path)
    assert agent.handle(_readable(b"nonsense"))["error"] == "MessageError"
    assert [line["event"] for line in agent.audit.read()] == ["refused"]
