"""How messages travel between the coordinator and the sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anamorph.federation.protocol.wire import Message, pack, unpack
from anamorph.federation.site.agent import SiteAgent


@dataclass(frozen=True)
class Replies:
    """What came back from some sites.

    Attributes
    ----------
    answers : dict
        Messages of the sites that answered, by name; a refusal is an answer.
    failures : dict
        Why there is none from the others, by name.
    """

    answers: dict[str, Message] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """A way to reach sites."""

    @property
    def names(self) -> tuple[str, ...]:
        """The sites that can be reached now."""
        ...

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Send each site its message, all at once, and wait for what they answer.

        Parameters
        ----------
        messages : dict
            By name of the site.
        timeout : float or None
            Seconds after which a site that has not answered is a failure.
        """
        ...


class LocalTransport:
    """Site agents in this process, reached by the very bytes that would leave a site.

    Parameters
    ----------
    agents : list of SiteAgent
    watch : callable, optional
        Called with the name of a site, the bytes it was sent and those it answered with.
    """

    def __init__(
        self,
        agents: Sequence[SiteAgent],
        watch: Callable[[str, bytes, bytes], object] | None = None,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._watch = watch

    @property
    def names(self) -> tuple[str, ...]:
        """All agents."""
        return tuple(self._agents)

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Ask the agents, one after the other: their own threads share the processors."""
        replies = Replies()
        for name, message in messages.items():
            if name not in self._agents:
                replies.failures[name] = "there is no such site"
                continue
            replies.answers[name] = self._ask(name, pack(message))
        return replies

    def _ask(self, name: str, sent: bytes) -> Message:
        answered = pack(self._agents[name].handle(unpack(sent)))
        if self._watch is not None:
            self._watch(name, sent, answered)
        return unpack(answered)
