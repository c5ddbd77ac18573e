"""The audit log of a site: one line for everything that left it, only ever added to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anamorph.federation.errors import MessageError, StorageError


class AuditLog:
    """A file of JSON lines, one for each message that was answered or refused.

    Parameters
    ----------
    path : Path
        Made if it does not exist; lines are added at its end and flushed before an answer leaves.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **facts: Any) -> None:
        """Add a line with the time (UTC) and some facts."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": now, **facts}) + "\n"
        try:
            # One write in append mode: lines of two processes do not mix.
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise StorageError(
                f"the audit log cannot be written ({error.strerror}): nothing is answered"
            ) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of every line."""
        with open(self.path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise MessageError(f"line {number} of {self.path} is not JSON") from None
