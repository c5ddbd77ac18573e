"""Atomic writing: a file is written under another name, flushed, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anamorph.images.errors import short_reason
from anamorph.storage.errors import WriteError


@contextmanager
def replacing(path: Path, suffix: str | None = None) -> Iterator[Path]:
    """Yield a temporary file to write to, and rename it to the path at the end.

    Whatever happens, the path holds the old file or the new one, never a part of it.

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
    if path.exists() and not path.is_file():
        raise WriteError(f"{path} cannot be written: it exists and is not a plain file")
    temporary = None
    try:
        ending = path.suffix if suffix is None else suffix
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}{ending}")
        os.close(os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less the umask
        temporary, permissions = hidden, hidden.stat().st_mode
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(permissions)  # a writer may have replaced the temporary file
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {short_reason(error)}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
