"""Residues in blocks: in memory, or in a file without a name where they are many."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from typing import IO

import numpy as np

from anamorph.arrays.column_sums import is_large
from anamorph.federation.masking.checksums import digest_of
from anamorph.federation.masking.field import PRIME, Residues
from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.errors import MessageError


class Blocks:
    """The residues of an answer or a total, of which each block is written once.

    Parameters
    ----------
    schema : AnswerSchema
        Of the question.
    """

    def __init__(self, schema: AnswerSchema) -> None:
        self._schema = schema
        self._blocks: list[Residues] = []
        self._file: IO[bytes] | None = None
        if is_large(schema.length):
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        self._digests: list[bytes] = []

    @property
    def is_complete(self) -> bool:
        """Whether all blocks are there."""
        return len(self._digests) == self._schema.n_blocks

    def append(self, index: int, block: object) -> Residues:
        """Append the next block, or raise a MessageError if it is not that."""
        if index != len(self._digests) or index >= self._schema.n_blocks:
            raise MessageError(f"block {len(self._digests)} is the next, got block {index}")
        n_numbers = self._schema.n_numbers(index)
        if not isinstance(block, np.ndarray) or block.dtype != np.uint64:
            raise MessageError("a block must be an array of 64-bit residues")
        if block.shape != (n_numbers,) or (n_numbers and block.max() >= PRIME):
            raise MessageError(f"block {index} must hold {n_numbers} residues below 2^61 - 1")
        self._digests.append(digest_of(block.tobytes()))
        if self._file is None:
            self._blocks.append(block)
        else:
            self._file.seek(0, 2)
            self._file.write(block.tobytes())
        return block

    def __getitem__(self, index: int) -> Residues:
        if not 0 <= index < len(self._digests):
            raise MessageError(f"there are {len(self._digests)} blocks, but {index} was asked for")
        if self._file is None:
            return self._blocks[index]
        self._file.seek(8 * sum(self._schema.n_numbers(before) for before in range(index)))
        n_bytes = 8 * self._schema.n_numbers(index)
        return np.frombuffer(self._file.read(n_bytes), np.uint64)

    def __iter__(self) -> Iterator[Residues]:
        return (self[index] for index in range(len(self._digests)))

    @property
    def digest(self) -> bytes:
        """Digest of all blocks."""
        return digest_of(b"anamorph blocks", *self._digests)
