"""Answers in blocks: the number of images and all fields, one after the other, as one long row.

Both ends know the shapes of an answer, so that a block is nothing but numbers. Large sums wait on
disk (`column_sums`), and a block of them is all that is ever in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.protocol.questions import Shape
from anamorph.federation.protocol.wire import BLOCK_BYTES
from anamorph.fitting.sums import Sums

#: Numbers in a block: 8 bytes each, masked or not.
BLOCK_LENGTH = BLOCK_BYTES // 8
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

    def block(self, index: int) -> slice:
        """Return which numbers a block holds."""
        return slice(BLOCK_LENGTH * index, min(BLOCK_LENGTH * (index + 1), self.length))

    def n_numbers(self, index: int) -> int:
        """Return how many numbers a block holds."""
        return min(BLOCK_LENGTH, self.length - BLOCK_LENGTH * index)

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
    """Numbers in a file of float32, read when needed and never mapped: they take no memory."""

    def __init__(self, path: Path, length: int) -> None:
        self._path, self._length = path, length

    def __getitem__(self, part: slice) -> NDArray[np.floating]:
        return np.fromfile(self._path, np.float32, part.stop - part.start, offset=4 * part.start)

    def largest(self) -> float:
        """Return the largest absolute value; not finite where a value is not."""
        starts = range(0, self._length, BLOCK_LENGTH)
        parts = (self[start : min(start + BLOCK_LENGTH, self._length)] for start in starts)
        return float(np.max([_largest(part) for part in parts]))


def _largest(values: NDArray[np.floating]) -> float:
    return float(max(values.max(), -values.min())) if values.size else 0.0


class Answer:
    """What a site answers to one question, block by block.

    Parameters
    ----------
    sums : Sums
        Fields that are mapped files of float32 stay there.
    row : Row

    Attributes
    ----------
    largest : dict
        Largest absolute value of each field; not finite where a value is not.
    """

    def __init__(self, sums: Sums, row: Row) -> None:
        self.row = row
        self.n_images = sums.n_images
        self.largest = {N_IMAGES: float(sums.n_images)}
        self._numbers: dict[str, _Numbers] = {N_IMAGES: np.array([float(sums.n_images)])}
        for name, values in sums.fields.items():
            if isinstance(values, np.memmap):
                numbers = _NumbersOnDisk(Path(str(values.filename)), values.size)
                self._numbers[name], self.largest[name] = numbers, numbers.largest()
            else:
                self._numbers[name], self.largest[name] = values.reshape(-1), _largest(values)

    def pieces(self, index: int) -> Iterator[tuple[Piece, NDArray[np.floating]]]:
        """Yield the parts of a block, and their numbers."""
        for piece in self.row.pieces(index):
            yield piece, self._numbers[piece.name][piece.there]
