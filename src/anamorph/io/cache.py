"""Decoded images in uncompressed files that are memory-mapped, so that each is decoded once."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.io.errors import ImageError
from anamorph.io.guard import reason

_VERSION = 1


class Cache:
    """A folder of arrays.

    Parameters
    ----------
    folder : path or None
        Made where it does not exist. None: a temporary one, removed with this object.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        try:
            if folder is None:
                self.folder = Path(tempfile.mkdtemp(prefix="anamorph-"))
                weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
            else:
                self.folder = Path(folder)
                self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(
                f"{folder or tempfile.gettempdir()} cannot hold decoded images "
                f"({reason(error)}): give another cache folder"
            ) from None

    def get(
        self, name: str, facts: tuple[object, ...], make: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return an array, memory-mapped where it is there already, and made where it is not.

        Parameters
        ----------
        name : str
            Where the name of its file begins.
        facts : tuple
            All that the array depends on.
        make : callable
            Returns the array.
        """
        digest = hashlib.sha256(repr((_VERSION, *facts)).encode()).hexdigest()[:24]
        path = self.folder / f"{name[:80]}-{digest}.npy"
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):  # not there, or somebody damaged it
            array = make()
            self._write(path, array)
        return array

    def _write(self, path: Path, array: NDArray[Any]) -> None:
        """Write an array by way of a temporary file, so that no reader sees half of it."""
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(".part", dir=self.folder)
            with open(handle, "wb") as file:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            os.replace(temporary, path)
        except OSError as error:
            raise ImageError(
                f"{path} cannot be written ({reason(error)}): make space, or give another cache "
                "folder"
            ) from None
        finally:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
