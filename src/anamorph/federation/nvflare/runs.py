"""One identity, one running site: a lock for this computer, and a record of runs for the others.

A copy of a kit has the same key, so only what happens tells it from the original. Each site keeps
a chain of its runs, one link for every job, and shows it to the other sites, signed. They remember
how far it went. A copy that was made earlier, or started with an empty folder, cannot continue
what they remember, and is refused; so is whichever of two comes second.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from anamorph.federation.protocol.errors import (
    ConsortiumError,
    DuplicateSiteError,
    MessageError,
)
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.append_only import JsonLines
from anamorph.storage.replace import replacing

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_TOKEN_BYTES = 16
_MOST_RUNS = 100_000


class RunRecord:
    """The chain of runs of one site, in a file that only grows.

    Every link also notes how long the site's ledger was and what it held, so that a ledger that
    was removed or cut is noticed when the next run begins.

    Parameters
    ----------
    folder : Path
        The ``work`` folder of the site's kit, with its ledger.
    """

    def __init__(self, folder: Path) -> None:
        self._lines = JsonLines(folder / "runs.jsonl", "the record of runs")
        self._ledger = folder / "ledger.jsonl"

    def begin(self) -> None:
        """Add a run.

        Raises
        ------
        DuplicateSiteError
            If the ledger no longer begins with what it held at the last run.
        """
        *_, last = [None, *self._lines.read()]
        data = self._ledger.read_bytes() if self._ledger.exists() else b""
        data = data[: data.rfind(b"\n") + 1]  # half a line may go
        if last is not None and _digest(data[: last["ledger_bytes"]]) != last["ledger"]:
            raise DuplicateSiteError(
                f"{self._ledger} does not continue what it was at the last run: it was removed, "
                "cut or is a copy; restore it, or join anew with a new key"
            )
        self._lines.append(
            token=secrets.token_hex(_TOKEN_BYTES), ledger=_digest(data), ledger_bytes=len(data)
        )

    def introduction(self, identity: Identity) -> Message:
        """Return the chain of runs and the time, signed by the site, for the other sites."""
        tokens, now = [line["token"] for line in self._lines.read()], time.time()
        signature = identity.sign(_statement(identity.name, tokens, now))
        return {"site": identity.name, "runs": tokens, "time": now, "signature": signature}


class MetSites:
    """The other sites' chains of runs, as far as this site has seen them.

    Parameters
    ----------
    path : Path
        A JSON file, made with the first introduction.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def meet(self, identity: Identity, introductions: Mapping[str, Message]) -> None:
        """Check the introductions of all sites of a job, and remember them.

        Parameters
        ----------
        identity : Identity
            Of this site, which must trust the keys of all others.
        introductions : dict
            What `RunRecord.introduction` returned at each site, by name.

        Raises
        ------
        SignatureError
            If one is not signed by a site that is accepted here (`CertificateError`), or does not
            continue what was seen before (`DuplicateSiteError`).
        """
        identity.check_roster(introductions)
        seen = self._read()
        for name, given in introductions.items():
            tokens, now = _checked(name, given)
            identity.verify(name, _statement(name, tokens, now), given["signature"])
            if name == identity.name:
                continue
            before = seen.get(name)
            if before is not None and _head(tokens[: before["runs"]]) != before["head"]:
                raise DuplicateSiteError(
                    f"{name} does not continue the {before['runs']} runs that were seen of it: a "
                    f"copy of its kit is running, or it was restored from a backup; ask there, "
                    f"and accept {name} again if it is"
                )
            seen[name] = {"runs": len(tokens), "head": _head(tokens)}
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")

    def forget(self, name: str) -> None:
        """Forget the runs of a site, whose next chain is then taken as it is."""
        seen = self._read()
        if seen.pop(name, None) is not None:
            with replacing(self._path) as temporary:
                temporary.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {}
        facts = json.loads(self._path.read_text(encoding="utf-8"))
        assert isinstance(facts, dict)
        return facts


def _checked(name: str, given: Message) -> tuple[list[str], float]:
    """Return the runs and the time of an introduction, or raise a MessageError."""
    tokens, now = given.get("runs"), given.get("time")
    if (
        not isinstance(tokens, list)
        or not 0 < len(tokens) <= _MOST_RUNS
        or not all(isinstance(token, str) and len(token) == 2 * _TOKEN_BYTES for token in tokens)
        or not isinstance(now, float)
        or not isinstance(given.get("signature"), bytes)
    ):
        raise MessageError(f"the introduction of {name} is not one")
    return tokens, now


def _statement(name: str, tokens: list[str], now: float) -> bytes:
    return json.dumps(["anamorph runs", name, len(tokens), _head(tokens), now]).encode()


def _head(tokens: list[str]) -> str:
    return _digest("".join(tokens).encode() + len(tokens).to_bytes(8, "little"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- on one computer


@contextlib.contextmanager
def locked(path: Path, message: str) -> Iterator[None]:
    """Lock a file until the process ends, or raise a ConsortiumError if another one has.

    Parameters
    ----------
    path : Path
        Made if necessary.
    message : str
        What the error says.
    """
    with path.open("ab") as file:
        try:
            _lock(file)
        except (BlockingIOError, PermissionError):
            raise ConsortiumError(message) from None
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
        yield


def _lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed; fail at once where another process has locked it."""
    if sys.platform == "win32":
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
