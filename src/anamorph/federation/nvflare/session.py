"""The coordinator's session with its own server: who is there, and jobs."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.flare_api import new_secure_session

from anamorph.federation.nvflare.jobs import write_job
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.nvflare.provision import ADMIN

_LOGIN = 5.0  # seconds that one attempt to log in may take
_PAUSE = 0.5


class SessionError(Exception):
    """The server does not answer."""


class Session:
    """A session with the server of a coordinator's kit.

    Parameters
    ----------
    kit : Kit
    timeout : float
        Seconds in which the server must be there.
    """

    def __init__(self, kit: Kit, timeout: float) -> None:
        _log_to(kit.work / "session.log")
        until = time.monotonic() + timeout
        _wait_for_port(kit, until)
        self._session = _log_in(kit, until)

    def close(self) -> None:
        """Log out."""
        with contextlib.suppress(Exception):  # the server may be gone
            self._session.close()

    def connected(self) -> set[str]:
        """Return the sites that are connected."""
        return {client.name for client in self._try(self._session.get_system_info).client_info}

    def submit(self, sites: Sequence[str]) -> str:
        """Submit a job for some sites; return its name."""
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder) / "job"
            write_job(job, sites)
            return str(self._try(self._session.submit_job, str(job)))

    def status(self, job: str) -> RunStatus:
        """Return where a job is."""
        return RunStatus(self._try(self._session.get_job_status, job))

    def abort(self, job: str) -> None:
        """End a job."""
        self._try(self._session.abort_job, job)

    def _try(self, function: Any, *arguments: Any) -> Any:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return function(*arguments)
        except Exception as error:
            raise SessionError(str(error)) from error


def _wait_for_port(kit: Kit, until: float) -> None:
    """Wait until somebody listens: NVFLARE itself would try again only seconds later."""
    while True:
        try:
            socket.create_connection((kit.host, kit.port), _LOGIN).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise SessionError(f"nobody listens at {kit.host}:{kit.port}") from error
            time.sleep(_PAUSE)


def _log_in(kit: Kit, until: float) -> Any:
    while True:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # it says what it is connecting to
                return new_secure_session(ADMIN, str(kit.admin), timeout=_LOGIN)
        except Exception as error:
            if time.monotonic() > until:
                raise SessionError(str(error)) from error
            time.sleep(_PAUSE)


def _log_to(path: Path) -> None:
    """Send what NVFLARE logs to a file, not to the terminal."""
    logger = logging.getLogger("nvflare")
    if not logger.handlers:
        logger.addHandler(logging.FileHandler(path))
        logger.propagate = False
