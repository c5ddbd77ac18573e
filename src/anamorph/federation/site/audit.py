"""The audit log of a site: one line for every answer and refusal, written before it leaves.

Lines are chained by hashes (`audit_chain`), and a file beside the log holds the head of the chain.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import StorageError
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.audit_chain import (
    PREVIOUS,
    Head,
    complete_part,
    hash_of,
    hash_to_follow,
    head_path,
    read_head,
)
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import replacing

try:
    import fcntl
except ImportError:  # Windows: there one process writes
    fcntl = None  # type: ignore[assignment]


class AuditLog(JsonLines):
    """A file of JSON lines, one for each message that was answered or refused.

    Parameters
    ----------
    path : Path
        Created with the first line. Lines are appended and flushed before an answer leaves. The
        head of the chain is beside it, with the suffix ``.head``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the audit log")
        self._is_clean = False

    def write(self, **facts: Any) -> None:
        """Append a line with the time (UTC), some facts and the hash of the line before.

        Raises
        ------
        StorageError
            If the line or the head of the chain cannot be written.
        """
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._alone():
            self._remove_leftovers()
            head = self._current_head()
            line = {"time": now, **facts, PREVIOUS: head.hash}
            self.append(**line)
            data = json.dumps(line).encode()
            self._write_head(Head(head.lines + 1, head.bytes + len(data) + 1, hash_of(data)))

    def _remove_leftovers(self) -> None:
        """Remove heads that a killed process has not finished, once; nobody else writes now."""
        if not self._is_clean:
            for leftover in self.path.parent.glob(f".{head_path(self.path).name}.*"):
                leftover.unlink(missing_ok=True)
            self._is_clean = True

    def _current_head(self) -> Head:
        """Return the head that the next line follows; read the log only if it has changed."""
        head = read_head(self.path)
        size = self.path.stat().st_size if self.path.exists() else 0
        if head is not None and head.bytes == size:
            return head
        data = complete_part(self.path.read_bytes()) if size else b""
        return Head(data.count(b"\n"), len(data), hash_to_follow(data, head))

    def _write_head(self, head: Head) -> None:
        try:
            with replacing(head_path(self.path)) as temporary:
                temporary.write_text(json.dumps(asdict(head)) + "\n", encoding="utf-8")
        except WriteError as error:
            raise StorageError(f"the head of the audit log: {error}") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing, so that no two lines follow the same one."""
        if fcntl is None:
            yield
            return
        try:
            file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(
                f"the audit log cannot be locked ({error.strerror}): make space on this disk"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)
