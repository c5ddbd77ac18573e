"""A site in a process of its own, at the other end of a pipe, which fails when it is told to."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import resource
import signal
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anamorph.federation import Identity, LocalTransport, Replies, SiteAgent, split_images
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.federation.site import append_only, states
from anamorph.images.collection import open_images
from anamorph.kernels.threads import use_threads
from tests.federation.conftest import LENIENT, stack

NAMES = ("site1", "site2", "site3")
MORTAL = "site2"
N_IMAGES = 13
PATIENCE = 60.0


class Accident(NamedTuple):
    """What happens to a site in a question, the n-th of its name since the site was started.

    It is killed when the question (or another message, by what it asks to do) has "arrived" or is
    "answered", when "half a line" of a log is written, or when a state is "not renamed" yet; or its
    disk is full when it comes to the "ledger", the "state" or the "audit" log.
    """

    kind: str
    question: str
    occurrence: int = 1


def agent_of(name: str, folder: Path) -> SiteAgent:
    """Return the agent of a site, the same in whichever process."""
    keys = {
        site: Ed25519PrivateKey.from_private_bytes(hashlib.sha256(site.encode()).digest())
        for site in NAMES
    }
    public = {site: key.public_key() for site, key in keys.items()}
    images = open_images(stack(N_IMAGES), "gaussian")
    part = list(split_images(N_IMAGES, len(NAMES))[NAMES.index(name)])
    return SiteAgent(
        name,
        images.subset(part),
        LENIENT,
        folder / name,
        Identity(name, keys[name], public),
        identities=[images.identities[n] for n in part],
        n_threads=1,
        secret=b"",
    )


# ---- in the process of the site


def serve(pipe: Connection, folder: Path, accident: Accident | None) -> None:
    """Answer messages, until the accident happens."""
    with use_threads(1):
        agent = agent_of(MORTAL, folder)
    steps: set[int] = set()
    while data := pipe.recv_bytes():
        message = unpack(data)
        is_time = False
        named = (message.get("question"), message["do"])
        if accident is not None and accident.question in named:
            steps.add(message["step"])
            is_time = len(steps) == accident.occurrence
        kind = accident.kind if is_time else None
        if kind == "arrived":
            die()
        with dying(kind), full_disk(kind):
            answer = pack(agent.handle(message))
        if kind == "answered":
            die()
        pipe.send_bytes(answer)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def dying(kind: str | None):
    """Kill this process while it writes a line of its ledger, or before a state is renamed."""
    write, rename = os.write, os.replace

    def write_half(file: int, data: bytes) -> int:
        write(file, data[: len(data) // 2])
        die()
        return 0

    def write_and_not_rename(source: Path, target: Path) -> None:
        assert source.stat().st_size > 0
        die()

    try:
        if kind == "half a line":
            os.write = write_half
        if kind == "not renamed":
            os.replace = write_and_not_rename
        yield
    finally:
        os.write, os.replace = write, rename


@contextmanager
def full_disk(kind: str | None):
    """Let files grow by a few bytes only where the ledger, a state or the audit log are written.

    It is the system that refuses: part of a line is written, and the rest is an error.
    """
    writers = {
        "ledger": (append_only, "append_line"),
        "audit": (append_only, "append_line"),
        "state": (states, "write_tensors"),
    }
    if kind not in writers:
        yield
        return
    module, name = writers[kind]
    write = getattr(module, name)

    def write_with_little_space(path: Path, *arguments: object) -> None:
        if not path.name.startswith(kind):
            write(path, *arguments)
            return
        size = path.stat().st_size if path.exists() else 0
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 7, limits[1]))
        try:
            write(path, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    setattr(module, name, write_with_little_space)
    yield
    setattr(module, name, write)


# ---- in the process of the coordinator


class MortalTransport:
    """Three sites, one of which is a process that is killed by plan, and started again.

    Attributes
    ----------
    accidents : list of Accident
        Still to come; each is handed over when the process is started.
    """

    names = NAMES

    def __init__(self, folder: Path, accidents: list[Accident]) -> None:
        others = [name for name in NAMES if name != MORTAL]
        self._others = LocalTransport([agent_of(name, folder) for name in others])
        self._folder, self.accidents = folder, accidents
        # Processes are copies of one that has everything loaded: starting them takes no time.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.federation.warm", __name__])
        self._start()

    def call(self, messages, timeout):
        replies = self._others.call(
            {name: message for name, message in messages.items() if name != MORTAL}, timeout
        )
        return self._ask(messages[MORTAL], replies) if MORTAL in messages else replies

    def _ask(self, message, replies: Replies) -> Replies:
        try:
            self._pipe.send_bytes(pack(message))
            assert self._pipe.poll(PATIENCE), "the site hangs"
            replies.answers[MORTAL] = unpack(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._process.join()
            assert self._process.exitcode == -signal.SIGKILL
            replies.failures[MORTAL] = "it died"
            self.accidents.pop(0)
            self._start()
        return replies

    def _start(self) -> None:
        self._pipe, other = self._context.Pipe()
        accident = self.accidents[0] if self.accidents else None
        self._process = self._context.Process(target=serve, args=(other, self._folder, accident))
        self._process.start()
        other.close()

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
