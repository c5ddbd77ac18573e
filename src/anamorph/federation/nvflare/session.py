"""The coordinator's session with its own server: connected sites, and jobs."""

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

from anamorph.federation.nvflare.hardening import ADMIN, write_job
from anamorph.federation.nvflare.kit import Kit

_LOGIN, _PAUSE = 5.0, 0.5  # seconds for one attempt to log in, and between attempts


class SessionError(Exception):
    """The server does not answer."""


class Session:
    """A session with the server of a coordinator's kit.

    Parameters
    ----------
    kit : Kit
        The coordinator's.
    timeout : float
        Seconds within which the server must answer.
    """

    def __init__(self, kit: Kit, timeout: float) -> None:
        _log_to(kit.work / "session.log")
        until = time.monotonic() + timeout
        # If no server listened, NVFLARE itself would try again only after seconds.
        _repeat(until, _reach, kit)
        self._session = _repeat(until, new_secure_session, ADMIN, str(kit.admin), timeout=_LOGIN)

    def close(self) -> None:
        """Log out."""
        with contextlib.suppress(Exception):  # the server may be gone
            self._session.close()

    def connected(self) -> set[str]:
        """Return the names of the sites that are connected."""
        return {client.name for client in _try(self._session.get_system_info).client_info}

    def submit(self, sites: Sequence[str]) -> str:
        """Submit a job for the named sites; return its identifier."""
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder) / "job"
            write_job(job, sites)
            return str(_try(self._session.submit_job, str(job)))

    def status(self, job: str) -> RunStatus:
        """Return the status of a job."""
        return RunStatus(_try(self._session.get_job_status, job))

    def abort(self, job: str) -> None:
        """End a job."""
        _try(self._session.abort_job, job)


def _try(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function of NVFLARE without what it prints, or raise a SessionError."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return function(*arguments, **options)
    except Exception as error:
        raise SessionError(str(error)) from error


def _repeat(until: float, function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function until it succeeds, or raise the last SessionError."""
    while True:
        try:
            return _try(function, *arguments, **options)
        except SessionError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)


def _reach(kit: Kit) -> None:
    """Check that the server listens."""
    try:
        socket.create_connection((kit.host, kit.port), _LOGIN).close()
    except OSError as error:
        raise SessionError(f"no server at {kit.host}:{kit.port}") from error


def _log_to(path: Path) -> None:
    """Send NVFLARE's log to a file, not to the terminal."""
    logger = logging.getLogger("nvflare")
    if not logger.handlers:
        logger.addHandler(logging.FileHandler(path))
        logger.propagate = False
