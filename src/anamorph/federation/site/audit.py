"""The audit log of a site: one line for everything that left it, only ever added to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import MessageError, StorageError
from anamorph.federation.site.lines import append_line, whole_lines


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
        try:
            append_line(self.path, json.dumps({"time": now, **facts}))
        except OSError as error:
            raise StorageError(
                f"the audit log cannot be written ({error.strerror}): nothing is answered"
            ) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of every line."""
        for number, line in enumerate(whole_lines(self.path), 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise MessageError(f"line {number} of {self.path} is not JSON") from None
