"""Images that are decoded once, onto the common grid, and kept.

Small ones stay in memory, others go to memory-mapped files.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import ReadableImages
from anamorph.images.errors import ImageError, short_reason
from anamorph.images.grid import Grid
from anamorph.images.labels import as_labels
from anamorph.images.readers.resample import resample, resample_labels
from anamorph.images.readers.source import Source

_VERSION = 2
_MOST_OF_BUDGET = 1 / 8


class Cache:
    """Arrays that are computed once.

    Parameters
    ----------
    folder : path, optional
        Created if it does not exist, and kept. By default arrays go to a temporary file without
        a name, which disappears with this process however it ends.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        try:
            self._store = _Unnamed() if folder is None else _Folder(Path(folder))
        except OSError as error:
            raise ImageError(
                f"{folder or tempfile.gettempdir()} cannot hold decoded images "
                f"({short_reason(error)}): give another cache folder"
            ) from None

    def get(
        self, name: str, facts: tuple[object, ...], make: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
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


class _Folder:
    """A folder with one file per array, which other processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> NDArray[Any] | None:
        try:
            return np.load(self._folder / key, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except (OSError, ValueError, EOFError):  # missing or damaged
            return None

    def keep(self, key: str, array: NDArray[Any]) -> None:
        """Write an array to a temporary file and rename it: no reader sees half an array."""
        handle, temporary = tempfile.mkstemp(".part", dir=self._folder)
        try:
            with open(handle, "wb") as file:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            os.replace(temporary, self._folder / key)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def describe(self, key: str) -> str:
        """Return where an array is stored, for an error message."""
        return str(self._folder / key)


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
        """Return where all arrays are stored, for an error message."""
        return f"a temporary file in {tempfile.gettempdir()}"


class KeptImages:
    """A collection that reads every image once.

    A fit needs all images some hundred times, and opening a small file takes longer than the
    computations on its image.

    Parameters
    ----------
    images : ReadableImages
    shape : tuple of int
        Of an image, (C, *space).
    """

    def __init__(self, images: ReadableImages, shape: tuple[int, ...]) -> None:
        self._images = images
        self._kept = np.empty((len(images), *shape), np.float32)
        self._is_kept = np.zeros(len(images), bool)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        if not self._is_kept[part].all():
            self._kept[part] = self._images.read(part)
            self._is_kept[part] = True
        return self._kept[part]


def can_be_kept(n_images: int, shape: tuple[int, ...], budget: int) -> bool:
    """Return whether images of shape (C, *space) take at most an eighth of a budget in bytes."""
    return 4 * n_images * math.prod(shape) <= _MOST_OF_BUDGET * budget


@dataclass(frozen=True)
class Decoder:
    """How the voxels of all files of a collection are read.

    Attributes
    ----------
    grid : Grid
        The common grid, without margin.
    cache : Cache
    has_labels : bool
        Whether voxels hold labels, which are not interpolated.
    channel_axis : int or None
        Axis of the stack of images that holds channels.
    missing_value : float or None
        Value that stands for missing, besides NaN.
    for_model : bool
        Whether files are read by the rules of a fitted model; by default not.
    """

    grid: Grid
    cache: Cache
    has_labels: bool
    channel_axis: int | None
    missing_value: float | None
    for_model: bool = False

    def is_elsewhere(self, source: Source) -> bool:
        """Tell whether a file is on another grid, so that it has to be resampled."""
        return source.grid.difference(self.grid) is not None

    def read(self, source: Source) -> NDArray[Any]:
        """Return voxels (C, *space) on the common grid, from the cache if decoding is slow."""
        is_elsewhere = self.is_elsewhere(source)
        if not (source.is_slow or is_elsewhere):
            return self._decode(source, is_elsewhere)
        facts = (
            os.path.abspath(source.path),
            source.stamp,
            self.has_labels,
            self.channel_axis,
            self.missing_value,
            self.grid.facts() if is_elsewhere else None,
        )
        return self.cache.get(source.path.name, facts, lambda: self._decode(source, is_elsewhere))

    def read_unresampled(self, source: Source) -> NDArray[Any]:
        """Return voxels as the file holds them, from the cache if they are in it."""
        return self._load(source) if self.is_elsewhere(source) else self.read(source)

    def _decode(self, source: Source, is_elsewhere: bool) -> NDArray[Any]:
        voxels = self._load(source)
        if self.has_labels:
            labels = as_labels(source.path, voxels, for_model=self.for_model)
            return resample_labels(labels, source.grid, self.grid) if is_elsewhere else labels
        return resample(voxels, source.grid, self.grid) if is_elsewhere else voxels

    def _load(self, source: Source) -> NDArray[Any]:
        """Return the voxels of a file, with NaN where a value stands for missing."""
        voxels = source.load()
        if self.missing_value is None:
            return voxels
        return np.where(voxels == self.missing_value, np.nan, voxels)
