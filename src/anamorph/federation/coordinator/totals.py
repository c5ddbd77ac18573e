"""Totals over sites, added up block by block; large ones are in files, so memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import empty_mapped, let_go
from anamorph.federation.masking.fixed_point import from_fixed_point
from anamorph.federation.protocol.answers import N_IMAGES, AnswerSchema, largest_magnitude
from anamorph.federation.protocol.errors import AnswerError, SitesLostError
from anamorph.fitting.sums import Sums

_MOST_IMAGES = 2**40


class Total:
    """The sum of the answers of all sites to a question.

    Parameters
    ----------
    schema : AnswerSchema
        Of the answers.
    n_sites : int
        How many sites answer.
    exponents : dict or None
        Fixed-point ranges of masked answers. None: answers are not masked.

    Attributes
    ----------
    largest : dict
        Largest absolute value of each field so far.
    """

    def __init__(
        self, schema: AnswerSchema, n_sites: int, exponents: Mapping[str, int] | None
    ) -> None:
        self._schema, self._n_sites, self._exponents = schema, n_sites, exponents
        shapes = schema.field_shapes.items()
        self.largest = {name: 0.0 for name, shape in shapes if math.prod(shape)}
        self._fields: dict[str, NDArray[Any]] = {
            name: empty_mapped(shape) if is_large(math.prod(shape)) else np.empty(shape)
            for name, shape in schema.shapes.items()
        }

    def add_block(self, index: int, blocks: Mapping[str, Any]) -> None:
        """Add up one block of all sites.

        Parameters
        ----------
        index : int
            Number of the block.
        blocks : dict
            The block of every site, by name.
        """
        dtype = np.dtype(np.float64 if self._exponents is None else np.uint64)
        total: NDArray[Any] = np.zeros(self._schema.n_numbers(index), dtype)
        wrong = {}
        for name in sorted(blocks):
            values = blocks[name]
            if not isinstance(values, np.ndarray) or (values.shape, values.dtype) != (
                total.shape,
                dtype,
            ):
                wrong[name] = "answered with a block of a wrong shape or type"
            elif self._exponents is None and not np.isfinite(values).all():
                wrong[name] = "answered with numbers that are not finite"
            else:
                total += values  # masked numbers are added modulo 2^64
        if wrong:
            raise SitesLostError(wrong)
        for piece in self._schema.pieces(index):
            values = total[piece.in_block]
            if self._exponents is not None:
                values = from_fixed_point(values, self._exponents[piece.name], self._n_sites)
            self._fields[piece.name].reshape(-1)[piece.in_field] = values
            let_go(self._fields[piece.name])
            if piece.name != N_IMAGES:
                self.largest[piece.name] = max(self.largest[piece.name], largest_magnitude(values))

    def sums(self) -> Sums:
        """Return the total, once all blocks are added.

        Raises
        ------
        AnswerError
            If the number of images is impossible, because masks did not cancel.
        """
        fields = dict(self._fields)
        n_images = float(fields.pop(N_IMAGES))
        # Masks that do not cancel leave a random number.
        if n_images != round(n_images) or not self._n_sites <= n_images < _MOST_IMAGES:
            raise AnswerError(
                "the masks of the sites do not cancel: the sites received different questions, or "
                "one of them is faulty"
            )
        return Sums(int(n_images), fields)
