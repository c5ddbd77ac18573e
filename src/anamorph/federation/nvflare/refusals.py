"""Refusals at the door: who tried to connect, and was not let in.

At a site they are lines of its audit log. At the coordinator they are in a file of their own, from
which the sites that they are about are told when the next job begins.
"""

from __future__ import annotations

import logging
import time

from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.protocol.errors import StorageError
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.audit import AuditLog

logger = logging.getLogger("anamorph")


def record_refusal(kit: Kit, text: str, about: str | None = None) -> None:
    """Record that a party was not let in.

    Parameters
    ----------
    kit : Kit
        Of the party that refuses.
    text : str
        What happened.
    about : str, optional
        Name of the site that should know of it; none by default.
    """
    logger.warning("%s", text)
    try:
        if kit.is_site:
            AuditLog(kit.audit_log).write(event="refused", do="connection", text=text)
        else:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            _log_of(kit).append(time=now, text=text, about=about)
    except StorageError as error:  # a full disk must not open the door
        logger.warning("%s", error)


def refusals_about(kit: Kit, site: str) -> list[str]:
    """Return the newest refusals at the coordinator that a site should know of, with times."""
    lines = [line for line in _log_of(kit).read() if line["about"] == site]
    return [f"{line['time']} {line['text']}" for line in lines[-10:]]


def _log_of(kit: Kit) -> JsonLines:
    return JsonLines(kit.work / "refusals.jsonl", "the list of refusals")
