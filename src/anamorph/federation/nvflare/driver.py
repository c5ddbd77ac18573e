"""The driver of the coordinator: it starts the server, submits jobs, follows and resubmits them.

NVFLARE neither puts a site back into a running job nor resumes a job. Here every job resumes from
the checkpoint of the previous one. Whatever dies (a site, the process of its job, the server or its
job), the next job continues; if this process dies, the same command resumes.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from typing import Any

from anamorph.federation.nvflare.job import Ending, Job, Watch
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.processes import end_coordinator, start_coordinator
from anamorph.federation.nvflare.request import FitRequest, Request, write_request
from anamorph.federation.nvflare.runs import locked
from anamorph.federation.nvflare.session import Session, SessionError
from anamorph.federation.protocol.errors import ConsortiumError

_POLL = 0.3  # seconds between checks of which sites are connected
_SERVER_START = 60.0
_RECONNECTION = 30.0  # seconds that sites may take to find a restarted server
# Jobs in a row that may end without an iteration. More would fail for the same reason.
_MOST_FRUITLESS_JOBS = 5


class Driver:
    """Runs the fits and analyses of a coordinator, on a server of its own.

    Parameters
    ----------
    kit : Kit
        The coordinator's.
    watch : Watch
        Called with what happens.
    patience : float
        Seconds to wait for a site that is not connected.
    """

    def __init__(self, kit: Kit, watch: Watch, patience: float) -> None:
        self._kit, self._watch, self._patience = kit, watch, patience
        self._n_at_first = len(kit.sites)
        self._server: subprocess.Popen[bytes] | None = None
        self._server_started = 0.0
        self._session: Session | None = None

    def run(self, request: Request, may_go_on_without: bool = False) -> dict[str, Any]:
        """Run a fit or an analysis to its end.

        Parameters
        ----------
        request : FitRequest or StatisticsRequest
            The same request for a fit resumes from its checkpoint.
        may_go_on_without : bool, default False
            Whether a fit continues without sites that do not connect in time.

        Returns
        -------
        dict
            Of a fit the fields of its `FederatedResult`, and of the model: images, iterations,
            objective. Of an analysis the ``roster``, and the size and mean of the ``groups``.

        Raises
        ------
        ConsortiumError
            If it cannot continue: a site refuses, or does not connect.
        """
        text = f"{self._kit.folder} is in use: wait until the other command with it is done"
        with locked(self._kit.work / "lock", text):
            try:
                return self._run_jobs(request, may_go_on_without)
            finally:
                self._end_server()

    def _run_jobs(self, request: Request, may_go_on_without: bool) -> dict[str, Any]:
        """Run jobs until one reports its result."""
        n_fruitless = 0
        while n_fruitless < _MOST_FRUITLESS_JOBS:
            try:
                session, sites = self._connected(), self._prepare(request, may_go_on_without)
                job = Job(self._kit, session, sites, self._watch)
                ending = job.follow(self._server_is_alive)
            except SessionError as error:
                self._watch.stage(f"The server does not answer ({error}): restarting it")
                self._end_server()
                ending = Ending(None, is_fruitless=True)
            if ending.result is not None:
                return ending.result
            n_fruitless = n_fruitless + 1 if ending.is_fruitless else 0
        raise ConsortiumError(
            f"{_MOST_FRUITLESS_JOBS} jobs in a row ended without progress; the logs in "
            f"{self._kit.folder} and at the sites say why"
        )

    def _prepare(self, request: Request, may_go_on_without: bool) -> list[str]:
        """Write the request for the next job; return the sites that take part in it."""
        if isinstance(request, FitRequest):
            has_begun = os.path.exists(request.checkpoint)
            sites = self._present_sites(may_go_on_without and has_begun)
            request = replace(request, may_go_on_without=len(sites) < self._n_at_first)
        else:
            sites = self._present_sites(may_go_on_without=False)
        write_request(request, self._kit)
        return sites

    # ---- the server, and connected sites

    def _present_sites(self, may_go_on_without: bool) -> list[str]:
        """Wait for all sites to connect; return those that did, if the others are not needed."""
        wanted = set(self._members_now())
        session = self._connected()
        until = max(time.monotonic() + self._patience, self._server_started + _RECONNECTION)
        reported: set[str] = set()
        while missing := wanted - session.connected():
            if missing != reported:
                self._watch.stage(f"Waiting for {', '.join(sorted(missing))}")
                reported = missing
            if time.monotonic() > until:
                break
            time.sleep(_POLL)
        if missing and not may_go_on_without:
            raise ConsortiumError(
                f"{', '.join(sorted(missing))} did not connect within {self._patience:g} s: start "
                "'anamorph site start' there, then run the same command"
            )
        return sorted(wanted - missing)

    def _members_now(self) -> tuple[str, ...]:
        """Take over a members file that has changed; return the names of all sites."""
        before, self._kit = self._kit, open_kit(self._kit.folder, as_site=False)
        for text, names in (
            ("is no longer a member", set(before.sites) - set(self._kit.sites)),
            ("is a new member", set(self._kit.sites) - set(before.sites)),
        ):
            for name in sorted(names):
                self._watch.stage(f"{name} {text}")
        self._n_at_first = max(self._n_at_first, len(self._kit.sites))
        return self._kit.sites

    def _connected(self) -> Session:
        """Return a session with the server, starting the server if necessary."""
        if not self._server_is_alive():
            self._end_server()
            self._watch.stage("Starting the server")
            self._server = start_coordinator(self._kit)
        if self._session is None:
            self._session = Session(self._kit, _SERVER_START)
            self._server_started = time.monotonic()
        return self._session

    def _server_is_alive(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def _end_server(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._server is not None:
            end_coordinator(self._server)
            self._server = None
