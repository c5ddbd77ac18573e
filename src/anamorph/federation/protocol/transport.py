"""The interface of an engine: it carries messages to sites, and their answers back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anamorph.federation.protocol.wire import Message


@dataclass(frozen=True)
class Replies:
    """What came back from the sites that were called.

    Attributes
    ----------
    answers : dict, default empty
        Message of every site that answered, by name. A refusal is an answer.
    failures : dict, default empty
        Why another site did not answer, by name.
    """

    answers: dict[str, Message] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """A connection to sites."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites that can be reached now."""
        ...

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Send each site its message, all at once, and wait for the answers.

        Parameters
        ----------
        messages : dict
            Message for each site, by name.
        timeout : float or None
            Seconds after which a site without an answer counts as failed. None: no limit.

        Returns
        -------
        Replies
        """
        ...
