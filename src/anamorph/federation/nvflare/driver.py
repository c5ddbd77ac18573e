"""Drive a fit to its end: start the server, submit the job, follow it, and begin it again.

NVFLARE puts no site back into a running job and resumes no job. Here every job goes on from the
checkpoint of the one before, so whatever dies (a site, the process of its job, the server or its
job), the next job is the cure; and if this process dies, the same command goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.errors import ConsortiumError
from anamorph.federation.nvflare.events import EventReader
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.nvflare.party import end_coordinator, start_coordinator
from anamorph.federation.nvflare.request import FitRequest, events_path
from anamorph.federation.nvflare.session import Session, SessionError

_LOOK = 0.3  # seconds between looks at events
_LOOK_AT_JOB = 1.0
_SERVER_START = 60.0
# Jobs in a row that may end without an iteration: what fails that often fails for a reason.
_MOST_IDLE_JOBS = 5


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


class Driver:
    """Drives the fits of a coordinator, within a ``with`` block.

    Parameters
    ----------
    kit : Kit
        Of the coordinator.
    watch : Watch
    patience : float
        Seconds to wait for a site that is not there.
    """

    def __init__(self, kit: Kit, watch: Watch, patience: float) -> None:
        self._kit, self._watch, self._patience = kit, watch, patience
        self._server: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Driver:
        self._lock.enter_context(_only_one(self._kit.work / "lock"))
        return self

    def __exit__(self, *_: object) -> None:
        self._end_server()
        self._lock.close()

    def fit(self, request: FitRequest, may_go_on_without: bool) -> dict[str, Any]:
        """Do a fit to its end; return the facts of its `FederatedResult`.

        Raises
        ------
        ConsortiumError
            If it cannot go on. The same request goes on from its checkpoint.
        """
        n_idle = 0
        while n_idle < _MOST_IDLE_JOBS:
            try:
                sites = self._present_sites(request, may_go_on_without)
                replace(request, may_go_on_without=len(sites) < len(self._kit.sites)).write(
                    self._kit
                )
                result, has_advanced = self._run_job(sites)
            except SessionError as error:  # the server died, or was never there
                self._watch.stage(f"The server does not answer ({error}): starting it again")
                self._end_server()
                result, has_advanced = None, False
            if result is not None:
                return result
            n_idle = 0 if has_advanced else n_idle + 1
        raise ConsortiumError(
            f"{_MOST_IDLE_JOBS} jobs in a row ended before an iteration was done; the logs in "
            f"{self._kit.work} and at the sites say why"
        )

    # ---- jobs

    def _run_job(self, sites: list[str]) -> tuple[dict[str, Any] | None, bool]:
        """Run a job; return its result, None if it is to be begun again, and if it got further."""
        events = EventReader(events_path(self._kit))
        session = self._connected()
        job = session.submit(sites)
        next_look, has_advanced, began = 0.0, False, False
        while True:
            for event in events.new():
                if event["kind"] == "iteration":
                    has_advanced = True
                began = True
                result = self._hear(event)
                if result is not None:
                    return result, True
            if self._server is None or self._server.poll() is not None:
                raise SessionError("its process died")
            if time.monotonic() >= next_look:
                if session.status(job).startswith("FINISHED"):
                    break
                next_look = time.monotonic() + _LOOK_AT_JOB
            time.sleep(_LOOK)
        for event in events.new():  # what was told between the two looks
            has_advanced = has_advanced or event["kind"] == "iteration"
            result = self._hear(event)
            if result is not None:
                return result, True
        self._watch.stage(
            "The job ended too early: beginning it again" if began else "The job could not begin"
        )
        return None, has_advanced

    def _hear(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Pass an event on; return the result if this is it."""
        kind = event.pop("kind")
        if kind == "done":
            return event
        if kind == "iteration":
            self._watch.iteration(event)
        elif kind == "began":
            self._watch.stage(f"Fitting with {', '.join(event['sites'])}")
        elif kind == "lost":
            self._watch.stage(f"Lost a site ({event['text']})")
        elif kind == "refused":
            raise ConsortiumError(event["text"])
        elif kind == "failed":
            raise ConsortiumError(f"{event['text']}; more is in the logs in {self._kit.work}")
        return None

    # ---- who is there

    def _present_sites(self, request: FitRequest, may_go_on_without: bool) -> list[str]:
        """Wait for all sites; return those that came, if the fit may go on with them."""
        wanted = set(self._kit.sites)
        session = self._connected()
        until = time.monotonic() + self._patience
        told: set[str] = set()
        while missing := wanted - session.connected():
            if missing != told:
                self._watch.stage(f"Waiting for {', '.join(sorted(missing))}")
                told = missing
            if time.monotonic() > until:
                break
            time.sleep(_LOOK)
        if missing and not (may_go_on_without and os.path.exists(request.checkpoint)):
            raise ConsortiumError(
                f"{', '.join(sorted(missing))} did not connect within {self._patience:g} s: start "
                "'anamorph site start' there, then run the same command"
            )
        return sorted(wanted - missing)

    def _connected(self) -> Session:
        """Return a session with the server, which is started where there is none."""
        if self._server is None or self._server.poll() is not None:
            self._end_server()
            self._watch.stage("Starting the server")
            self._server = start_coordinator(self._kit)
        if self._session is None:
            self._session = Session(self._kit, _SERVER_START)
        return self._session

    def _end_server(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._server is not None:
            end_coordinator(self._server)
            self._server = None


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Refuse to run twice with the same kit at the same time."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConsortiumError(
                f"{path.parent.parent} is in use: wait until the other fit with this kit is done"
            ) from None
        yield
