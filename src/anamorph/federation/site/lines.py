"""Files of lines that are only ever added to: a line is in them whole, or not at all.

A process that is killed, or a disk that is full, can leave half a line at the end. It is not read,
and goes when the next line is added: nothing has left the site on account of it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_LONGEST = 2**20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # which Windows has


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, and have it on the disk.

    Raises
    ------
    OSError
        If that fails; the file then is as it was.
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


def whole_lines(path: Path) -> list[str]:
    """Return all lines of a file that are whole; none where there is no file."""
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return lines


def _drop_half_a_line(file: int) -> int:
    """Cut off what follows the last whole line; return the size of the file."""
    size = os.fstat(file).st_size
    if size and _read_at(file, size - 1, 1) != b"\n":
        start = max(0, size - _LONGEST)
        size = start + _read_at(file, start, _LONGEST).rfind(b"\n") + 1
        os.ftruncate(file, size)
    return size


def _read_at(file: int, place: int, n_bytes: int) -> bytes:
    os.lseek(file, place, os.SEEK_SET)  # os.pread is not everywhere; what is written is appended
    return os.read(file, n_bytes)
