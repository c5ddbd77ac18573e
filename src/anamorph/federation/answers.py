"""Answers in blocks: the number of images and all fields, one after the other, as one long row.

Both ends know the shapes of an answer, so that a block is nothing but numbers. An answer that is
large waits on disk in float32, and is never in memory twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.errors import StorageError
from anamorph.federation.questions import Shape
from anamorph.federation.wire import BLOCK_BYTES
from anamorph.io.guard import reason
from anamorph.sums import Sums

#: Numbers in a block: 8 bytes each, masked or not.
BLOCK_LENGTH = BLOCK_BYTES // 8
#: An answer with more bytes than this (in float64) waits on disk.
_MOST_BYTES_IN_MEMORY = 256 * 2**20
N_IMAGES = "n_images"


@dataclass(frozen=True)
class Piece:
    """A part of a block that belongs to one field.

    Attributes
    ----------
    name : str
        Of the field, or "n_images".
    here : slice
        Which numbers of the block.
    there : slice
        Which numbers of the field, flattened.
    """

    name: str
    here: slice
    there: slice


class Row:
    """Where the fields of an answer are in the long row.

    Parameters
    ----------
    shapes : dict
        Of all fields, in order.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = {N_IMAGES: (), **shapes}
        self.length = sum(math.prod(shape) for shape in self.shapes.values())
        self.n_blocks = -(-self.length // BLOCK_LENGTH)

    @property
    def field_shapes(self) -> dict[str, Shape]:
        """Shapes of the fields alone."""
        return {name: shape for name, shape in self.shapes.items() if name != N_IMAGES}

    @property
    def is_large(self) -> bool:
        """Whether an answer should wait on disk."""
        return 8 * self.length > _MOST_BYTES_IN_MEMORY

    def block(self, index: int) -> slice:
        """Return which numbers a block holds."""
        return slice(BLOCK_LENGTH * index, min(BLOCK_LENGTH * (index + 1), self.length))

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the parts of a block, field by field."""
        block, first = self.block(index), 0
        for name, shape in self.shapes.items():
            last = first + math.prod(shape)
            start, stop = max(first, block.start), min(last, block.stop)
            if start < stop:
                here = slice(start - block.start, stop - block.start)
                yield Piece(name, here, slice(start - first, stop - first))
            first = last


class _Numbers(Protocol):
    def __getitem__(self, part: slice, /) -> NDArray[np.floating]: ...


class _NumbersOnDisk:
    """Numbers in a file, read when needed and never mapped, so that they take no memory."""

    def __init__(self, path: Path, values: NDArray[np.floating]) -> None:
        self._path = path
        try:
            values.astype(np.float32).tofile(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageError(
                f"an answer cannot be kept on the disk of this site ({reason(error)}): make space"
            ) from None

    def __getitem__(self, part: slice) -> NDArray[np.floating]:
        return np.fromfile(self._path, np.float32, part.stop - part.start, offset=4 * part.start)


class Answer:
    """What a site answers to one question, block by block.

    Parameters
    ----------
    sums : Sums
    row : Row
    folder : Path
        Where a large answer waits, in place of the one before.

    Attributes
    ----------
    largest : dict
        Largest absolute value of each field; not finite where a value is not.
    """

    def __init__(self, sums: Sums, row: Row, folder: Path) -> None:
        self.row = row
        self.n_images = sums.n_images
        self._numbers: dict[str, _Numbers] = {N_IMAGES: np.array([float(sums.n_images)])}
        self.largest = {N_IMAGES: float(sums.n_images)}
        for name, values in sums.fields.items():
            self.largest[name] = float(max(values.max(), -values.min())) if values.size else 0.0
            flat = values.reshape(-1)
            self._numbers[name] = (
                _NumbersOnDisk(folder / f"answer-{name}.float32", flat) if row.is_large else flat
            )

    def pieces(self, index: int) -> Iterator[tuple[Piece, NDArray[np.floating]]]:
        """Yield the parts of a block, and their numbers."""
        for piece in self.row.pieces(index):
            yield piece, self._numbers[piece.name][piece.there]
