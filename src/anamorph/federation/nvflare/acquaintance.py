"""How the sites of a job get to know each other, before the first question.

Each shows its chain of runs, signed (`runs`). A site answers nothing about a roster with a site
that it has not met in this job, or whose key nobody at the site has accepted.
"""

from __future__ import annotations

import logging
import time

from anamorph.federation.nvflare.kit import Kit, write_json
from anamorph.federation.nvflare.runs import MetSites, RunRecord
from anamorph.federation.protocol.errors import CertificateError, FederationError, MessageError
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.audit import AuditLog

logger = logging.getLogger("anamorph")

#: Seconds by which clocks may differ without a warning.
CLOCK_TOLERANCE = 60.0


class Acquaintance:
    """What a site knows of the other sites of a job.

    Parameters
    ----------
    kit : Kit
        Of the site.
    identity : Identity
        Of the site.
    """

    def __init__(self, kit: Kit, identity: Identity) -> None:
        self._kit, self._identity = kit, identity
        self._audit = AuditLog(kit.audit_log)
        self._met: set[str] = set()
        self._runs = RunRecord(kit.work)
        self._refusal: Message | None = None
        try:
            self._runs.begin()
        except FederationError as error:
            self._refusal = self._refuse("introduce", error)

    def introduce(self) -> Message:
        """Return the introduction of this site, or why it takes part in nothing."""
        return self._refusal or self._runs.introduction(self._identity)

    def meet(self, message: Message) -> Message:
        """Check the introductions of all sites of the job.

        Parameters
        ----------
        message : dict
            ``introductions`` of all sites by name, the ``time`` at the coordinator, and
            ``notices``, lines about what happened at its door under the name of this site.

        Returns
        -------
        dict
            Empty, or the refusal.
        """
        try:
            if self._met:  # a coordinator that repeats it could fill the audit log with notices
                raise MessageError("this site has met the others of this job already")
            introductions, now = message.get("introductions"), message.get("time")
            if not isinstance(introductions, dict) or not isinstance(now, float):
                raise MessageError("'meet' needs introductions and the time of the coordinator")
            self._heed(message.get("notices", []))
            self._compare_clocks(now)
            MetSites(self._kit.work / "met.json").meet(self._identity, introductions)
        except FederationError as error:
            return self._refuse("meet", error)
        self._met = set(introductions)
        self._audit.write(event="met", roster=sorted(self._met))
        return {}

    def refusal_of(self, message: Message) -> Message | None:
        """Return the refusal of a question about sites that were not met, or are not accepted."""
        if self._refusal is not None:
            return self._refusal
        roster = message.get("roster")
        if roster is None:
            return None
        try:
            if not isinstance(roster, list) or not all(isinstance(name, str) for name in roster):
                raise MessageError("a roster is a list of names")
            self._identity.check_roster(roster)
            for name in roster:
                if name not in self._met:
                    raise CertificateError(f"{name} has not introduced itself in this job")
        except FederationError as error:
            return self._refuse(str(message.get("do")), error)
        return None

    def _refuse(self, task: str, error: FederationError) -> Message:
        logger.warning("%s", error)
        name = type(error).__name__
        self._audit.write(event="refused", do=task, error=name, text=str(error))
        return {"error": name, "text": str(error)}

    def _heed(self, notices: object) -> None:
        """Write what the coordinator tells about this site's name into the audit log, once."""
        if not isinstance(notices, list):
            raise MessageError("notices are a list of lines")
        known = {line.get("text") for line in self._audit.read() if line["event"] == "warned"}
        for text in notices[:10]:
            if isinstance(text, str) and text[:500] not in known:
                logger.warning("The coordinator tells: %s", text[:500])
                self._audit.write(event="warned", text=text[:500])

    def _compare_clocks(self, coordinator: float) -> None:
        """Note how far the coordinator's clock is ahead, for 'anamorph site doctor'."""
        ahead = coordinator - time.time()
        write_json(self._kit.work / "clock.json", {"ahead": ahead, "measured": time.time()})
        if abs(ahead) > CLOCK_TOLERANCE:
            logger.warning("The coordinator's clock is %.0f s ahead of this one", ahead)
