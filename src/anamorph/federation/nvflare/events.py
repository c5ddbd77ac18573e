"""How the job tells whoever started it what happens: lines of JSON in a file of the kit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class EventWriter:
    """Adds lines to the end of a file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, kind: str, **facts: Any) -> None:
        """Add an event, at once and as a whole."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **facts}) + "\n")


class EventReader:
    """Reads lines that were added to a file since it was made.

    Parameters
    ----------
    path : Path
        Need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.stat().st_size if path.exists() else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the events since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):  # the rest of it is still to come
                    return
                self._place += len(line)
                yield json.loads(line)
