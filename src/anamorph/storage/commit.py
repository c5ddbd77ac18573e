"""Locks of output files, and files that are committed together.

Of two processes that would write the same file, one is told to wait. The lock is a hidden file
beside it. The system releases it when its process ends, however it ends; what then remains of it is
empty, or the record of a commit: of a fit's model, its latents, the end of its checkpoint.

1. Each file is written under a hidden name beside its own.
2. A record of the commit is written into the lock: from now on it will be done.
3. Files get their names, the checkpoint is removed, and last the lock with its record.

A process that is killed before 2 has left hidden files, which the next one removes. One that is
killed after it has left the record, by which the next one does the rest.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from anamorph.images.errors import short_reason
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import check_folder, flush_folder, real_file, remove_leftovers

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

logger = logging.getLogger("anamorph")

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_MOST_BYTES = 2**20


class Lock:
    """The lock of a file, held from when it is made until `release`.

    Parameters
    ----------
    path : Path
        The file to lock. It need not exist; its folder must.

    Raises
    ------
    WriteError
        If another process holds the lock, or the folder cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        check_folder(path)
        real = real_file(path)
        self.path = real.with_name(f".{real.name}.lock")
        try:
            self._descriptor = self._acquire()
        except BlockingIOError:
            raise WriteError(
                f"{path} is being written by another fit: wait until it has ended, or write to "
                "another file"
            ) from None
        except OSError as error:
            raise WriteError(f"{path} cannot be written: {short_reason(error)}") from None

    def _acquire(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(descriptor, self.path)
                # Whoever held the lock may have removed the file before it was locked here.
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def read(self) -> bytes:
        """Return what the holder of the lock, or one before it, has written into it."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.read(self._descriptor, _MOST_BYTES)

    def write(self, record: bytes) -> None:
        """Write a record into the lock that outlives this process, unless it is released."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, record)
        os.fsync(self._descriptor)

    def release(self) -> None:
        """Remove the lock with what is written into it."""
        if sys.platform == "win32":  # Windows does not remove files that are open
            os.close(self._descriptor)
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        if sys.platform != "win32":
            os.close(self._descriptor)

    def abandon(self) -> None:
        """Let others have the lock, and leave them what is written into it."""
        os.close(self._descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file, and remove what killed processes have left beside it."""
    lock = Lock(path)
    try:
        remove_leftovers(real_file(path))
        yield
    finally:
        lock.release()


def _lock(descriptor: int, path: Path) -> None:
    """Lock an open file, or raise a BlockingIOError if another process has locked it."""
    if sys.platform == "win32":
        os.lseek(descriptor, _MOST_BYTES, os.SEEK_SET)  # beyond what is written
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        logger.warning("%s has no locks: do not start two fits with one output", path.parent)


class Outputs:
    """The files that one command writes together, locked within a ``with`` block.

    Parameters
    ----------
    paths : list of Path
        Their folders must exist.
    name : Path
        Which of them to lock: one that all commands have which write one of these files.

    Raises
    ------
    WriteError
        At the start of the block, if another process writes these files, or a folder cannot be
        written to.
    """

    def __init__(self, paths: Sequence[Path], name: Path) -> None:
        self._paths, self._name = list(paths), name
        self._record: dict[str, Any] | None = None

    def __enter__(self) -> Outputs:
        self._lock = Lock(self._name)
        self._record = _read_record(self._lock.read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            self._do_rest()
        except BaseException:
            self._lock.abandon()
            raise
        self._lock.release()

    def finish_interrupted(self, identity: str) -> bool:
        """Do the rest of a commit that was interrupted, or remove what was left before one.

        Parameters
        ----------
        identity : str
            Stands for this command.

        Returns
        -------
        bool
            Whether it was a commit of the same command, which has nothing left to do.
        """
        record = self._record
        self._do_rest()
        for path in map(real_file, self._paths):
            _staged(path).unlink(missing_ok=True)
            remove_leftovers(_staged(path))
            remove_leftovers(path)
        if record is None:
            return False
        if record["identity"] == identity and all(path.exists() for path in self._paths):
            return True
        self._lock.write(b"")  # or the checkpoint of the fit that begins now would be removed
        return False

    def commit(
        self, writers: Mapping[Path, Callable[[Path], object]], remove: Path, identity: str
    ) -> None:
        """Write files together, and remove another one.

        Parameters
        ----------
        writers : dict of callables
            By the path to write, what writes it to the path that it is given.
        remove : Path
            The file to remove when the others are there: the checkpoint.
        identity : str
            Stands for the command; returned by `finish_interrupted` if this one is killed.

        Raises
        ------
        WriteError
            If a file cannot be written; all are as they were before.
        """
        staged = {real_file(path): _staged(real_file(path)) for path in writers}
        try:
            for path, temporary in zip(writers, staged.values(), strict=True):
                _write_staged(writers[path], path, temporary)
            self._record = {
                "identity": identity,
                "files": [str(real) for real in staged],
                "remove": str(real_file(remove)),
            }
            for folder in {real.parent for real in staged}:
                flush_folder(folder)
            self._lock.write(json.dumps(self._record).encode())
        except BaseException:
            self._record = None
            self._lock.write(b"")
            for temporary in staged.values():
                temporary.unlink(missing_ok=True)
            raise
        self._do_rest()

    def _do_rest(self) -> None:
        """Do what a record says. It may be done in part, or already."""
        if self._record is None:
            return
        files = [Path(name) for name in self._record["files"]]
        for path in files:
            if _staged(path).exists():
                try:
                    os.replace(_staged(path), path)
                except OSError as error:
                    raise WriteError(f"{path} cannot be written: {short_reason(error)}") from None
        for folder in {path.parent for path in files}:
            flush_folder(folder)
        Path(self._record["remove"]).unlink(missing_ok=True)
        self._record = None


def _write_staged(write: Callable[[Path], object], path: Path, temporary: Path) -> None:
    try:
        write(temporary)
    except OSError as error:
        text = short_reason(error).replace(str(temporary), str(path))
        if str(path) not in text:
            text = f"{path} cannot be written: {text}"
        raise WriteError(text) from None


def _staged(path: Path) -> Path:
    """Return the hidden name under which a file waits for its commit."""
    return path.with_name(f".{path.name}.new")


def _read_record(content: bytes) -> dict[str, Any] | None:
    """Return the record of a commit; None if none was written, or not to its end."""
    try:
        record = json.loads(content)
    except ValueError:
        return None
    is_whole = isinstance(record, dict) and record.keys() == {"identity", "files", "remove"}
    return record if is_whole else None
