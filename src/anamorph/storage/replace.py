"""Atomic writing: a file is written under another name, flushed, then renamed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anamorph.images.errors import short_reason
from anamorph.storage.errors import ModelFileError, WriteError


@contextmanager
def replacing(path: Path, suffix: str | None = None) -> Iterator[Path]:
    """Yield a temporary file to write to, and rename it to the path at the end.

    Whatever happens, the path holds the old file or the new one, never a part of it. A link is
    followed: the file that it leads to is replaced.

    Parameters
    ----------
    path : Path
    suffix : str, optional
        Suffix of the temporary file, by which libraries choose a format; by default that of the
        path.

    Raises
    ------
    WriteError
        If the folder, the permission or the space is missing, or the path is not a plain file.
    """
    real = real_file(path)
    ending = path.suffix if suffix is None else suffix
    # Named before it is made: an interrupt may come as soon as it is there.
    temporary = real.with_name(f".{real.name}.{secrets.token_hex(4)}{ending}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less the umask
        permissions = temporary.stat().st_mode
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(permissions)  # a writer may have replaced the temporary file
        os.replace(temporary, real)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {short_reason(error)}") from None
    finally:
        with suppress(OSError):  # it may have its name by now, or never have been made
            temporary.unlink()


def real_file(path: Path) -> Path:
    """Return the file that a path leads to, or raise a WriteError if it cannot be a plain file."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise WriteError(f"{path} cannot be written: its links lead in a circle")
    if real.exists() and not real.is_file():
        raise WriteError(f"{path} cannot be written: it exists and is not a plain file")
    return real


def check_folder(path: Path) -> None:
    """Raise a ModelFileError if the folder of a file does not exist: it is not made."""
    if not path.parent.is_dir():
        raise ModelFileError(f"{path.parent} does not exist: create it, then write {path.name}")


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that processes which were killed have left beside a file.

    Only whoever has locked the file may call it: a temporary file may be in use.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}(\..*)?", re.DOTALL)
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def flush_folder(folder: Path) -> None:
    """Make renames in a folder last, where the system can: they survive a loss of power."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
