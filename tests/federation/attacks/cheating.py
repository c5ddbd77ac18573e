"""Coordinators that cheat: the honest program, with messages changed on their way."""

from anamorph.federation import Replies
from anamorph.federation.coordinator.round import Round
from anamorph.federation.masking.field import PRIME
from anamorph.federation.protocol.bounds import Bounds
from tests.federation.conftest import fit, sites


class Meddling:
    """A transport that changes what sites are told, and what they seem to answer.

    Parameters
    ----------
    inner : Transport
        To unmodified sites.
    tell : callable, optional
        Given the name of a site and its message, returns the message that is sent instead.
    hear : callable, optional
        Given the name of a site, the message and the answer, returns the answer to believe.
    """

    def __init__(self, inner, tell=None, hear=None):
        self.inner, self.tell, self.hear = inner, tell, hear
        self.question = None

    @property
    def names(self):
        return self.inner.names

    def call(self, messages, timeout):
        replies = Replies()
        for name, message in messages.items():
            self.question = message.get("question", self.question)
            if self.tell is not None:
                message = self.tell(name, dict(message)) or message
            answer = self.inner.call({name: message}, timeout).answers[name]
            if self.hear is not None:
                answer = self.hear(name, message, dict(answer)) or answer
            replies.answers[name] = answer
        return replies


def forge_totals(monkeypatch, question, shift=2**40):
    """Let the coordinator add something to one number of the total of a question.

    It goes on with the forged total itself, and does not check what it has changed.
    """
    add_up = Round._added

    def forged(self, index, replies, masked):
        total = add_up(self, index, replies, masked)
        if self.binding.question == question:
            place = len(total) // 2
            total[place] = (int(total[place]) + shift) % PRIME
        return total

    monkeypatch.setattr(Round, "_added", forged)
    monkeypatch.setattr(Round, "_check", lambda *_: None)


class Gullible(Bounds):
    """Bounds of a coordinator that does not check them."""

    def check_total(self, *_):
        pass


def log_of(transport, name, event=None):
    """Return the lines of the audit log of a site, of one event or of all."""
    agent = transport._agents[name]
    return [line for line in agent.audit.read() if event in (None, line["event"])]


def attack(folder, tell=None, hear=None, **options):
    """Fit with a cheating coordinator; return the transport to the unmodified sites."""
    inner = sites(folder, **options)
    return inner, lambda: fit(Meddling(inner, tell, hear))
