"""From masked numbers to sums: both ends encode answers and decode totals in the same way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import empty_mapped, let_go
from anamorph.federation.masking.blocks import Blocks
from anamorph.federation.masking.field import Residues
from anamorph.federation.masking.fixed_point import from_fixed_point, to_fixed_point
from anamorph.federation.protocol.answers import N_IMAGES, Answer, AnswerSchema
from anamorph.fitting.sums import Sums


def encoded_blocks(answer: Answer, exponents: Mapping[str, int]) -> Iterator[Residues]:
    """Yield the blocks of an answer as fixed-point numbers.

    Parameters
    ----------
    answer : Answer
    exponents : dict
        Fixed-point range of each field.
    """
    for index in range(answer.schema.n_blocks):
        block = np.empty(answer.schema.n_numbers(index), np.uint64)
        for piece, values in answer.pieces(index):
            block[piece.in_block] = to_fixed_point(values, exponents[piece.name])
        yield block


def decoded_total(total: Blocks, schema: AnswerSchema, exponents: Mapping[str, int]) -> Sums:
    """Return the sums that a total stands for; large ones are in files.

    Parameters
    ----------
    total : Blocks
    schema : AnswerSchema
    exponents : dict
        Fixed-point range of each field.
    """
    fields: dict[str, NDArray[Any]] = {
        name: empty_mapped(shape) if is_large(math.prod(shape)) else np.empty(shape)
        for name, shape in schema.shapes.items()
    }
    for index, block in enumerate(total):
        for piece in schema.pieces(index):
            values = from_fixed_point(block[piece.in_block], exponents[piece.name])
            fields[piece.name].reshape(-1)[piece.in_field] = values
            let_go(fields[piece.name])
    n_images = float(fields.pop(N_IMAGES))
    return Sums(round(n_images), fields)
