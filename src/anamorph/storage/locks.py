"""Locks of output files: of two processes that would write the same file, one is told to wait.

The lock of a file is a hidden file beside it. The system releases it when its process ends, however
it ends; what then remains of it is empty, or the record of a commit (see `commit`).
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anamorph.images.errors import short_reason
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import check_folder, real_file, remove_leftovers

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
