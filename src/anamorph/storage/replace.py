"""Files that are whole or not there: written under another name, flushed, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anamorph.images.guard import reason
from anamorph.storage.errors import WriteError


@contextmanager
def replacing(path: Path, suffix: str | None = None) -> Iterator[Path]:
    """Give a temporary file to write to, which takes the place of a file at the end.

    Whatever happens meanwhile, the file is the old one or the new one, never half of it.

    Parameters
    ----------
    path : Path
    suffix : str, optional
        That the name of the temporary file ends with, which may say how it is to be written; by
        default that of the path.

    Raises
    ------
    WriteError
        If there is no folder, no permission, no space, or something that is not a file.
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
        temporary.chmod(permissions)  # a writer may have put a file of its own in its place
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {reason(error)}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
