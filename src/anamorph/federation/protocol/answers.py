"""Answers as blocks of numbers: the number of images, then all fields, one after another.

Both ends derive the same `AnswerSchema` from a question, and a block holds nothing but numbers.
Large sums stay on the disk of the site (`column_sums`), and only one block is in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anamorph.arrays.typing import Array, Float64Array
from anamorph.federation.protocol.questions import Shape
from anamorph.federation.protocol.wire import BLOCK_BYTES
from anamorph.fitting.sums import Sums

#: Numbers in a block, of 8 bytes each, whether masked or not.
BLOCK_LENGTH = BLOCK_BYTES // 8
N_IMAGES = "n_images"


@dataclass(frozen=True)
class Piece:
    """The part of a block that belongs to one field.

    Attributes
    ----------
    name : str
        Name of the field, or "n_images".
    in_block : slice
        Which numbers of the block.
    in_field : slice
        Which numbers of the flattened field.
    """

    name: str
    in_block: slice
    in_field: slice


class AnswerSchema:
    """Where each field of an answer is in its sequence of numbers, and how blocks divide that.

    Parameters
    ----------
    shapes : dict
        Shape of every field, in order, without the number of images.

    Attributes
    ----------
    shapes : dict
        The same with the number of images first.
    length, n_blocks : int
        How many numbers and blocks there are.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = {N_IMAGES: (), **shapes}
        self.length = sum(math.prod(shape) for shape in self.shapes.values())
        self.n_blocks = -(-self.length // BLOCK_LENGTH)

    @property
    def field_shapes(self) -> dict[str, Shape]:
        """Shapes of the fields, without the number of images."""
        return {name: shape for name, shape in self.shapes.items() if name != N_IMAGES}

    def n_numbers(self, index: int) -> int:
        """Return how many numbers a block holds."""
        return min(BLOCK_LENGTH, self.length - BLOCK_LENGTH * index)

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the pieces of a block, field by field."""
        begin = BLOCK_LENGTH * index
        end, first = begin + self.n_numbers(index), 0
        for name, shape in self.shapes.items():
            last = first + math.prod(shape)
            start, stop = max(first, begin), min(last, end)
            if start < stop:
                in_block = slice(start - begin, stop - begin)
                yield Piece(name, in_block, slice(start - first, stop - first))
            first = last


def largest_magnitude(values: Array) -> float:
    """Return the largest absolute value, 0 of none; it is not finite where a value is not."""
    return float(max(values.max(), -values.min())) if values.size else 0.0


class Answer:
    """The answer of a site to one question, read block by block.

    Parameters
    ----------
    sums : Sums
        Fields that are mapped files of float32 stay on disk.
    schema : AnswerSchema
        Of the question.

    Attributes
    ----------
    largest : dict
        Largest absolute value of each field; it is not finite where a value is not.
    """

    def __init__(self, sums: Sums, schema: AnswerSchema) -> None:
        self.schema = schema
        self.n_images = sums.n_images
        self._numbers: dict[str, Array | Path] = {N_IMAGES: np.array([float(sums.n_images)])}
        for name, values in sums.fields.items():
            self._numbers[name] = values.reshape(-1)
            if isinstance(values, np.memmap):
                self._numbers[name] = Path(str(values.filename))
        self.largest = dict.fromkeys(self._numbers, 0.0)
        for index in range(schema.n_blocks):
            for piece, part in self.pieces(index):
                # Unlike `max`, it keeps NaN.
                larger = np.maximum(self.largest[piece.name], largest_magnitude(part))
                self.largest[piece.name] = float(larger)

    def pieces(self, index: int) -> Iterator[tuple[Piece, Array]]:
        """Yield the pieces of a block with their numbers."""
        for piece in self.schema.pieces(index):
            numbers, part = self._numbers[piece.name], piece.in_field
            if isinstance(numbers, Path):  # read, not mapped, which would fill the memory
                n_numbers = part.stop - part.start
                yield piece, np.fromfile(numbers, np.float32, n_numbers, offset=4 * part.start)
            else:
                yield piece, numbers[part]

    def unmasked_block(self, index: int) -> Float64Array:
        """Return a block in the clear."""
        block = np.empty(self.schema.n_numbers(index))
        for piece, values in self.pieces(index):
            block[piece.in_block] = values
        return block
