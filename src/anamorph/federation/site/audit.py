"""The audit log of a site: one line for every answer and refusal, written before it leaves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from anamorph.federation.site.append_only import JsonLines


class AuditLog(JsonLines):
    """A file of JSON lines, one for each message that was answered or refused.

    Parameters
    ----------
    path : Path
        Created with the first line. Lines are appended and flushed before an answer leaves.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the audit log")

    def write(self, **facts: Any) -> None:
        """Append a line with the time (UTC) and some facts."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.append(time=now, **facts)
