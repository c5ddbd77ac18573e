"""Decoded images in memory-mapped, uncompressed files: each file is decoded once."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.guard import short_reason

_VERSION = 1

Make = Callable[[], NDArray[Any]]


class Cache:
    """Arrays that are computed once.

    Parameters
    ----------
    folder : path, optional
        Created if it does not exist, and kept. By default arrays go to a temporary file without
        a name, which disappears with this process however it ends.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._store: _Store
        try:
            self._store = _Unnamed() if folder is None else _Folder(Path(folder))
        except OSError as error:
            raise ImageError(
                f"{folder or tempfile.gettempdir()} cannot hold decoded images "
                f"({short_reason(error)}): give another cache folder"
            ) from None

    def get(self, name: str, facts: tuple[object, ...], make: Make) -> NDArray[Any]:
        """Return an array: memory-mapped if the cache holds it, else computed and stored.

        Parameters
        ----------
        name : str
            How the name of its file begins, if it has one.
        facts : tuple
            Everything that the array depends on.
        make : callable
            Computes the array.

        Returns
        -------
        array
        """
        digest = hashlib.sha256(repr((_VERSION, *facts)).encode()).hexdigest()[:24]
        key = f"{name[:80]}-{digest}.npy"
        array = self._store.find(key)
        if array is None:
            array = make()
            try:
                self._store.keep(key, array)
            except OSError as error:
                raise ImageError(
                    f"{self._store.describe(key)} cannot be written ({short_reason(error)}): make "
                    "space, or give another cache folder"
                ) from None
        return array


class _Store(Protocol):
    def find(self, key: str) -> NDArray[Any] | None: ...

    def keep(self, key: str, array: NDArray[Any]) -> None: ...

    def describe(self, key: str) -> str:
        """Return where an array is stored, for an error message."""
        ...


class _Folder:
    """A folder with one file per array, which other processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> NDArray[Any] | None:
        try:
            array: NDArray[Any] = np.load(self.path_of(key), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):  # missing or damaged
            return None
        return array

    def keep(self, key: str, array: NDArray[Any]) -> None:
        """Write an array to a temporary file and rename it: no reader sees half an array."""
        handle, temporary = tempfile.mkstemp(".part", dir=self._folder)
        try:
            with open(handle, "wb") as file:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            os.replace(temporary, self.path_of(key))
        finally:
            Path(temporary).unlink(missing_ok=True)

    def path_of(self, key: str) -> Path:
        return self._folder / key

    def describe(self, key: str) -> str:
        return str(self.path_of(key))


class _Unnamed:
    """One file without a name for all arrays of this process.

    Copies of images are personal data: a temporary folder would survive a process that is killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        # Unbuffered: nothing may be left to write when the file is closed.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._places: dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]] = {}

    def __reduce__(self) -> tuple[type[_Unnamed], tuple[()]]:
        return _Unnamed, ()  # another process gets a file of its own

    def find(self, key: str) -> NDArray[Any] | None:
        with self._lock:
            if self._owner != os.getpid():  # a fork must not overwrite its parent's arrays
                self._begin()
            if key not in self._places:
                return None
            start, dtype, shape = self._places[key]
            return np.memmap(self._file, dtype, "r", start, shape)

    def keep(self, key: str, array: NDArray[Any]) -> None:
        with self._lock:
            start = self._file.seek(0, os.SEEK_END)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError:
                self._file.truncate(start)
                raise
            self._places[key] = (start, array.dtype, array.shape)

    def describe(self, key: str) -> str:
        return f"a temporary file in {tempfile.gettempdir()}"
