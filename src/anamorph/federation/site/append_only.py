"""Files of JSON lines that only grow: a line is in the file completely, or not at all.

A killed process or a full disk can leave half a line at the end. Readers ignore it, and the next
line replaces it: no answer has left the site on account of it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import MessageError, StorageError

_LONGEST = 2**20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # Windows only


class JsonLines:
    """A file with one JSON object per line.

    Parameters
    ----------
    path : Path
        Created with the first line.
    name : str
        What the file is, for errors.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._name = path, name

    def append(self, **facts: Any) -> None:
        """Append a line with some facts, and flush it to the disk.

        Raises
        ------
        StorageError
            If that fails. The file is then unchanged.
        """
        try:
            append_line(self.path, json.dumps(facts))
        except OSError as error:
            raise StorageError(
                f"{self._name} cannot be written ({error.strerror}): make space on this disk"
            ) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the object of every complete line."""
        for number, line in enumerate(complete_lines(self.path), 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise MessageError(f"line {number} of {self.path} is not JSON") from None


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, and flush it to the disk.

    Raises
    ------
    OSError
        If that fails. The file is then unchanged.
    """
    data = line.encode() + b"\n"
    file = os.open(path, _FLAGS, 0o600)
    try:
        size = _drop_half_a_line(file)
        try:
            # One write in append mode: lines of two processes do not mix.
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def complete_lines(path: Path) -> list[str]:
    """Return all complete lines of a file, none if it does not exist."""
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return lines


def _drop_half_a_line(file: int) -> int:
    """Cut off what follows the last complete line; return the size of the file."""
    size = os.fstat(file).st_size
    if size and _read_at(file, size - 1, 1) != b"\n":
        start = max(0, size - _LONGEST)
        size = start + _read_at(file, start, _LONGEST).rfind(b"\n") + 1
        os.ftruncate(file, size)
    return size


def _read_at(file: int, place: int, n_bytes: int) -> bytes:
    os.lseek(file, place, os.SEEK_SET)  # not os.pread, which Windows lacks; writes append anyway
    return os.read(file, n_bytes)
