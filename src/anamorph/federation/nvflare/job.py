"""One job of the coordinator: submit it, pass its events on, and notice however it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.request import events_path
from anamorph.federation.nvflare.session import Session, SessionError
from anamorph.federation.protocol.errors import ConsortiumError

_POLL_EVENTS, _POLL_JOB = 0.3, 1.0  # seconds


@dataclass(frozen=True)
class Watch:
    """Functions that are called with what happens.

    Attributes
    ----------
    stage : callable
        Called with a line of text when something begins.
    iteration : callable
        Called with the fields of a `Progress` after every iteration.
    """

    stage: Callable[[str], object]
    iteration: Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes
    ----------
    result : dict or None
        The result that the job reported. None: it ended before that.
    is_fruitless : bool, default False
        Whether it ended by itself without an iteration.
    """

    result: dict[str, Any] | None
    is_fruitless: bool = False


class EventReader:
    """Reads the events that the job appends to a file of JSON lines.

    Parameters
    ----------
    path : Path
        Need not exist yet. Events that it holds already are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.stat().st_size if path.exists() else 0

    def read_new(self) -> Iterator[dict[str, Any]]:
        """Yield the events since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):  # it is still being written
                    return
                self._place += len(line)
                yield json.loads(line)


class Job:
    """A job, submitted when this object is made.

    Parameters
    ----------
    kit : Kit
        The coordinator's.
    session : Session
        With its server.
    sites : list of str
        Names of the sites of the job.
    watch : Watch
        Called with what happens.
    """

    def __init__(self, kit: Kit, session: Session, sites: Sequence[str], watch: Watch) -> None:
        self._kit, self._session, self._sites, self._watch = kit, session, set(sites), watch
        self._events = EventReader(events_path(kit))
        self._has_begun = self._has_advanced = False
        self._name = session.submit(sites)

    def follow(self, server_is_alive: Callable[[], bool]) -> Ending:
        """Pass events on until the job has ended, or must be ended.

        Parameters
        ----------
        server_is_alive : callable
            Returns whether the process of the server still runs.

        Returns
        -------
        Ending

        Raises
        ------
        SessionError
            If the server dies.
        ConsortiumError
            If another job would fail in the same way.
        """
        next_poll = 0.0
        while True:
            result = self._pass_events_on()
            if result is not None:
                return Ending(result)
            if not server_is_alive():
                raise SessionError("its process died")
            if time.monotonic() >= next_poll:
                ending = self._ending()
                if ending is not None:
                    return ending
                next_poll = time.monotonic() + _POLL_JOB
            time.sleep(_POLL_EVENTS)

    def _ending(self) -> Ending | None:
        """Return how the job ended, ending it now if need be; None while it continues."""
        if self._session.status(self._name).startswith("FINISHED"):
            result = self._pass_events_on()  # since the last poll
            if result is None:
                self._watch.stage("The job ended too early: submitting it again")
            return Ending(result, is_fruitless=not self._has_advanced)
        members = set(open_kit(self._kit.folder, as_site=False).sites)
        if not self._sites <= members:
            self._watch.stage(f"Ending the job: {_named(self._sites - members)} was revoked")
            self._session.abort(self._name)
            return Ending(None)
        connected = self._session.connected()
        away = members - self._sites
        # Not before an iteration: the sites have answered for this roster, and would refuse to
        # answer the same for another one.
        if self._has_advanced and away and away <= connected:
            self._watch.stage(f"Continuing with {_named(away)} again")
        elif self._has_begun or self._sites <= connected:
            return None
        self._session.abort(self._name)
        return Ending(None)

    def _pass_events_on(self) -> dict[str, Any] | None:
        """Pass new events on; return the result of the job if it is among them."""
        for event in self._events.read_new():
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


def _named(names: set[str]) -> str:
    return ", ".join(sorted(names))
