"""One message to several sites: all of them answer, or an error says which did not and why."""

from __future__ import annotations

from collections.abc import Mapping

from anamorph.federation.protocol.errors import (
    NAMED,
    AnswerError,
    SiteFailure,
    SitesLostError,
    StaleStepError,
    StorageError,
)
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.protocol.wire import Message

# A restart of the site, or going back to an earlier step, may remedy these.
_RECOVERABLE = (StaleStepError, StorageError, SiteFailure, AnswerError)


def call_sites(
    transport: Transport, messages: Mapping[str, Message], timeout: float | None
) -> dict[str, Message]:
    """Send some sites their messages.

    Parameters
    ----------
    transport : Transport
    messages : dict
        By name of the site.
    timeout : float or None
        Seconds that a site may take for an answer. None: no limit.

    Returns
    -------
    dict
        The answers of all sites, by name.

    Raises
    ------
    SitesLostError
        If some sites do not answer, or fail in a way that a restart may remedy.
    FederationError
        The refusal of a site, with its name.
    """
    replies = transport.call(messages, timeout)
    lost = {name: replies.failures.get(name, "it did not answer") for name in messages}
    for name, answer in replies.answers.items():
        lost.pop(name, None)
        if "error" not in answer:
            continue
        kind = NAMED.get(answer["error"], SiteFailure)
        if not issubclass(kind, _RECOVERABLE):
            raise kind(f"{name} refuses: {answer['text']}")
        lost[name] = str(answer["text"])
    if lost:
        raise SitesLostError(lost)
    return replies.answers
