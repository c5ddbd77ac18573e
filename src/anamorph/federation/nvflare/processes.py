"""NVFLARE's processes: a site runs in this process, the coordinator's server in a child of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import NoReturn

import psutil

from anamorph.federation.nvflare.hardening import HEARTBEAT, harden
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.protocol.errors import ConsortiumError

_JOB_FOLDER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = 5.0  # seconds in which a process may end by itself
# How processes of jobs allocate memory (glibc). NVFLARE splits messages into pieces of a megabyte,
# in many threads. With these settings freed pieces return to the system; otherwise each thread
# keeps its own pool of them, and the pools grow to a gigabyte.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "500000", "MALLOC_ARENA_MAX": "2"}


def run_site(kit: Kit) -> NoReturn:
    """Take part in the coordinator's jobs, and reconnect whenever its server restarts.

    The process ends when it is interrupted or refused, together with all processes of its jobs.
    """
    from nvflare.private.fed.app.client.client_train import main

    harden(kit)
    _forget_jobs(kit)
    _prepare(kit)
    try:
        main(_arguments(kit, fed_client="fed_client.json", local_rank=0))
    except Exception as error:  # threads of NVFLARE would keep the process alive
        reason = " ".join(str(error).split())
        print(f"error: no connection ({reason}); see {kit.folder / 'log.txt'}", file=sys.stderr)
        _end(1)
    _end(0)


def start_coordinator(kit: Kit) -> subprocess.Popen[bytes]:
    """Start the coordinator's server as a child process, which ends when this process does."""
    _wait_for_port(kit)
    harden(kit)
    _forget_jobs(kit)
    with (kit.work / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "anamorph.federation.nvflare.processes", str(kit.folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches this process, which then ends the server
        )


def end_coordinator(server: subprocess.Popen[bytes]) -> None:
    """End the coordinator's server and its job."""
    with server:  # closes the pipe and waits
        server.terminate()
        try:
            server.wait(_ENDING)
        except subprocess.TimeoutExpired:
            server.kill()


def _run_coordinator(kit: Kit) -> None:
    from nvflare.private.fed.app.server.server_train import main

    _prepare(kit)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(_arguments(kit, fed_server="fed_server.json"))


def _wait_for_port(kit: Kit) -> None:
    """Wait until a server that is ending has released its port."""
    until = time.monotonic() + _ENDING
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", kit.port))
                return
            except OSError:
                if time.monotonic() > until:
                    raise ConsortiumError(
                        f"port {kit.port} is in use on this computer: end what uses it, or make "
                        "kits for another port"
                    ) from None
        time.sleep(_ENDING / 20)


def _forget_jobs(kit: Kit) -> None:
    """Remove the files of earlier jobs: NVFLARE must not rerun them by itself."""
    for folder in [*kit.folder.iterdir(), kit.work / "jobs", kit.work / "snapshots"]:
        if folder.parent == kit.work or _JOB_FOLDER.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def _prepare(kit: Kit) -> None:
    """Set up this process for NVFLARE."""
    os.chdir(kit.folder)
    os.environ.update(_ALLOCATION)  # inherited by the processes of jobs
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(0))


def _arguments(kit: Kit, **others: object) -> Namespace:
    """Return the arguments that NVFLARE's start scripts pass on the command line."""
    facts = {"secure_train": "true", "org": kit.name, "config_folder": "config"}
    if kit.is_site:
        facts |= {"uid": kit.name, "heart_beat_interval": str(HEARTBEAT)}
    options = [f"{key}={value}" for key, value in facts.items()]
    return Namespace(workspace=str(kit.folder), set=options, **others)


def _end(code: int) -> NoReturn:
    """End this process and the processes of its jobs, without waiting for NVFLARE's threads."""
    for child in psutil.Process().children(recursive=True):
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_with_parent() -> None:
    """End when the parent process closes the pipe, or dies."""
    sys.stdin.buffer.read()
    _end(0)


if __name__ == "__main__":
    _run_coordinator(open_kit(Path(sys.argv[1]), as_site=False))
