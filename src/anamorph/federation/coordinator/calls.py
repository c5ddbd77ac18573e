"""One message to several sites: all of them answer, or an error says which did not and why."""

from __future__ import annotations

from collections.abc import Sequence

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
    transport: Transport, names: Sequence[str], message: Message, timeout: float | None
) -> dict[str, Message]:
    """Send some sites the same message.

    Parameters
    ----------
    transport : Transport
    names : list of str
        Names of the sites.
    message : Message
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
    replies = transport.call(dict.fromkeys(names, message), timeout)
    lost = {name: replies.failures.get(name, "it did not answer") for name in names}
    for name, answer in replies.answers.items():
        del lost[name]
        if "error" not in answer:
            continue
        kind = NAMED.get(answer["error"], SiteFailure)
        if not issubclass(kind, _RECOVERABLE):
            raise kind(f"{name} refuses: {answer['text']}")
        lost[name] = str(answer["text"])
    if lost:
        raise SitesLostError(lost)
    return replies.answers
