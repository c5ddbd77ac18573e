"""Follow one job from its submission to its end, however it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anamorph.federation.nvflare.errors import ConsortiumError
from anamorph.federation.nvflare.events import EventReader
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.nvflare.request import events_path
from anamorph.federation.nvflare.session import Session, SessionError

_LOOK = 0.3  # seconds between looks at events
_LOOK_AT_JOB = 1.0


@dataclass(frozen=True)
class Watch:
    """Whom to tell what happens.

    Attributes
    ----------
    stage : callable
        Told what is going on, in words.
    iteration : callable
        Told the facts of a `Progress` after every iteration.
    """

    stage: Callable[[str], object]
    iteration: Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes
    ----------
    result : dict or None
        What the job told at its end; None: it did not come to it.
    is_in_vain : bool
        Whether nothing came of it, and no site is to blame.
    """

    result: dict[str, Any] | None
    is_in_vain: bool = False


class Job:
    """A job that has been submitted.

    Parameters
    ----------
    kit : Kit
        Of the coordinator.
    session : Session
    sites : list of str
        That the job is for.
    watch : Watch
    """

    def __init__(self, kit: Kit, session: Session, sites: Sequence[str], watch: Watch) -> None:
        self._kit, self._session, self._sites, self._watch = kit, session, set(sites), watch
        self._events = EventReader(events_path(kit))
        self._has_begun = self._has_advanced = False
        self._name = session.submit(sites)

    def follow(self, server_is_alive: Callable[[], bool]) -> Ending:
        """Tell what happens until the job has ended, or has to be ended.

        Raises
        ------
        SessionError
            If the server dies.
        ConsortiumError
            If there is no use in beginning again.
        """
        next_look = 0.0
        while True:
            result = self._listen()
            if result is not None:
                return Ending(result)
            if not server_is_alive():
                raise SessionError("its process died")
            if time.monotonic() >= next_look:
                ending = self._ending()
                if ending is not None:
                    return ending
                next_look = time.monotonic() + _LOOK_AT_JOB
            time.sleep(_LOOK)

    def _ending(self) -> Ending | None:
        """Return how the job has ended or was ended now; None while it goes on."""
        if self._session.status(self._name).startswith("FINISHED"):
            result = self._listen()  # what was told since the last look
            if result is None:
                self._watch.stage("The job ended too early: beginning it again")
            return Ending(result, is_in_vain=not self._has_advanced)
        connected = self._session.connected()
        away = set(self._kit.sites) - self._sites
        if self._has_begun and away and away <= connected:
            self._watch.stage(f"Going on with {', '.join(sorted(away))} again")
        elif self._has_begun or self._sites <= connected:
            return None
        self._session.abort(self._name)
        return Ending(None)

    def _listen(self) -> dict[str, Any] | None:
        """Pass on what the job tells; return its result once that is told."""
        for event in self._events.new():
            kind = event.pop("kind")
            if kind == "done":
                return event
            self._pass_on(kind, event)
        return None

    def _pass_on(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "began":
            self._has_begun = True
            self._watch.stage(f"Asking {', '.join(event['sites'])}")
        elif kind == "iteration":
            self._has_advanced = True
            self._watch.iteration(event)
        elif kind == "lost":
            self._watch.stage(f"Lost a site ({event['text']})")
        elif kind == "refused":
            raise ConsortiumError(event["text"])
        else:
            raise ConsortiumError(f"{event['text']}; more is in the logs in {self._kit.folder}")
