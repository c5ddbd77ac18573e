"""NVFLARE's processes: a site runs in this process, the coordinator's server in a child of it."""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
from cryptography import x509

from anamorph.federation.nvflare.accepted import check_own_certificate
from anamorph.federation.nvflare.hardening import HEARTBEAT, harden
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.members import MEMBERS, read_members
from anamorph.federation.nvflare.refusals import record_refusal
from anamorph.federation.nvflare.runs import locked
from anamorph.federation.protocol.certificates import (
    certificate_from_pem,
    check_valid_now,
    fingerprint,
    name_on,
)
from anamorph.federation.protocol.errors import ConsortiumError, FederationError
from anamorph.federation.site.audit import AuditLog

_JOB_FOLDER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = 5.0  # seconds in which a process may end by itself
# How processes of jobs allocate memory (glibc). NVFLARE splits messages into pieces of a megabyte,
# in many threads. With these settings freed pieces return to the system; otherwise each thread
# keeps its own pool of them, and the pools grow to a gigabyte.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "500000", "MALLOC_ARENA_MAX": "2"}


def run_site(kit: Kit) -> NoReturn:
    """Take part in the coordinator's jobs, and reconnect whenever its server restarts.

    The process ends when it is interrupted or refused, together with all processes of its jobs.

    Raises
    ------
    ConsortiumError
        If the site runs already, on this computer and with this kit.
    CertificateError
        If its certificate has expired, was revoked or is not for its key.
    """
    check_own_certificate(kit)
    kit.work.mkdir(exist_ok=True)
    with locked_site(kit):
        _run_site(kit)


@contextlib.contextmanager
def locked_site(kit: Kit) -> Iterator[None]:
    """Hold the lock of a running site, or raise a ConsortiumError that the audit log records."""
    path = kit.work / "lock"
    pid = ""
    with contextlib.suppress(OSError):  # none yet, or Windows, where a locked file is not read
        pid = f" (process {path.read_text().strip()})"
    text = f"{kit.name} is running already with this kit{pid}: stop that one first"
    try:
        with locked(path, text):
            yield
    except ConsortiumError as error:
        if str(error) == text:
            AuditLog(kit.audit_log).write(
                event="refused", do="start", text=f"a second start of {kit.name} with this kit"
            )
        raise


def _run_site(kit: Kit) -> NoReturn:
    from nvflare.private.fed.app.client.client_train import main

    harden(kit)
    _forget_jobs(kit)
    _prepare(kit)
    _guard(kit)
    try:
        main(_arguments(kit, fed_client="fed_client.json", local_rank=0))
    except Exception as error:  # threads of NVFLARE would keep the process alive
        reason = " ".join(str(error).split())
        _give_up(kit, _refused_text(kit) if reason == "Login failed." else reason)
    _end(0)


def start_coordinator(kit: Kit) -> subprocess.Popen[bytes]:
    """Start the coordinator's server as a child process, which ends when this process does."""
    certificate = certificate_of(kit.startup / "server.crt")
    check_valid_now(certificate, "the coordinator's certificate", "anamorph federation renew")
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
    _guard(kit)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(_arguments(kit, fed_server="fed_server.json"))


def _guard(kit: Kit) -> None:
    """Check who connects to this process, and report who is refused."""
    from anamorph.federation.nvflare.handshakes import (
        guard_handshakes,
        keep_first_connections,
        watch_connections,
    )

    def report(text: str, about: str | None = None) -> None:
        record_refusal(kit, text, about)
        print(text, flush=True)

    if kit.is_site:
        guard_handshakes(_site_door(kit), report)
        watch_connections(report, lambda: _give_up(kit, _refused_text(kit)))
    else:
        guard_handshakes(_coordinator_door(kit), report)
        keep_first_connections(report)


def _refused_text(kit: Kit) -> str:
    return (
        f"the coordinator refused {kit.name}: another {kit.name} is running, or it is not a "
        "member any more; the coordinator's log says which"
    )


def _give_up(kit: Kit, reason: str) -> NoReturn:
    """End the process of a site that cannot take part, and say why."""
    record_refusal(kit, f"no connection with the coordinator: {reason}")
    print(f"error: no connection ({reason}); see {kit.folder / 'log.txt'}", file=sys.stderr)
    _end(1)


def _site_door(kit: Kit) -> Callable[[x509.Certificate], str | None]:
    """Let in the processes of the site itself: whoever has its key."""
    own = fingerprint(certificate_of(kit.startup / "client.crt").public_key())

    def admit(certificate: x509.Certificate) -> str | None:
        if fingerprint(certificate.public_key()) == own:
            return None
        return f"only this site's own processes connect here, not {name_on(certificate)}"

    return admit


def _coordinator_door(kit: Kit) -> Callable[[x509.Certificate], str | None]:
    """Let in members, and the coordinator's own processes."""
    paths = (kit.startup / "server.crt", kit.admin / "startup" / "client.crt")
    own = {fingerprint(certificate_of(path).public_key()) for path in paths}

    def admit(certificate: x509.Certificate) -> str | None:
        seen, name = fingerprint(certificate.public_key()), name_on(certificate)
        if seen in own:
            return None
        try:
            members = read_members(kit.folder / MEMBERS)  # it may have changed since the start
            if fingerprint(members.valid_certificate(name).public_key()) == seen:
                return None
        except FederationError as error:
            return str(error)
        return f"it has another key under the name {name} than the member ({seen})"

    return admit


def certificate_of(path: Path) -> x509.Certificate:
    """Return the certificate in a file."""
    return certificate_from_pem(path.read_bytes(), str(path))


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
