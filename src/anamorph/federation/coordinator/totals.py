"""Totals over sites, added up block by block; large ones on disk, so that memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import empty_mapped, let_go
from anamorph.federation.masking.secure_sum import from_fixed_point
from anamorph.federation.protocol.answers import N_IMAGES, Row
from anamorph.federation.protocol.errors import AnswerError, SitesLostError
from anamorph.federation.protocol.questions import Shape
from anamorph.fitting.sums import Sums

_MOST_IMAGES = 2**40


class Total:
    """The sum of the answers of all sites to a question.

    Parameters
    ----------
    row : Row
    n_sites : int
    exponents : dict or None
        Scales of masked answers; None where they are not masked.

    Attributes
    ----------
    largest : dict
        Largest absolute value of each field so far.
    """

    def __init__(self, row: Row, n_sites: int, exponents: Mapping[str, int] | None) -> None:
        self._row, self._n_sites, self._exponents = row, n_sites, exponents
        shapes = row.field_shapes.items()
        self.largest = {name: 0.0 for name, shape in shapes if math.prod(shape)}
        self._fields: dict[str, _Field] = {
            name: _OnDisk(shape) if is_large(math.prod(shape)) else _InMemory(shape)
            for name, shape in row.shapes.items()
        }

    def add_block(self, index: int, blocks: Mapping[str, Any]) -> None:
        """Add up a block of all sites, by name."""
        dtype = np.dtype(np.float64 if self._exponents is None else np.uint64)
        total: NDArray[Any] = np.zeros(self._row.n_numbers(index), dtype)
        wrong = {}
        for name in sorted(blocks):
            values = blocks[name]
            if not isinstance(values, np.ndarray) or (values.shape, values.dtype) != (
                total.shape,
                dtype,
            ):
                wrong[name] = "answered with a block of another shape or type than it should"
            elif self._exponents is None and not np.isfinite(values).all():
                wrong[name] = "answered with numbers that are not finite"
            else:
                total += values  # masked ones modulo 2^64
        if wrong:
            raise SitesLostError(wrong)
        for piece in self._row.pieces(index):
            values = total[piece.here]
            if self._exponents is not None:
                values = from_fixed_point(values, self._exponents[piece.name], self._n_sites)
            self._fields[piece.name].put(piece.there, values)
            if piece.name != N_IMAGES:
                here = float(max(values.max(), -values.min()))
                self.largest[piece.name] = max(self.largest[piece.name], here)

    def sums(self) -> Sums:
        """Return the total."""
        fields = {name: field.array() for name, field in self._fields.items()}
        n_images = float(fields.pop(N_IMAGES))
        # Masks that do not cancel leave a random number.
        if n_images != round(n_images) or not self._n_sites <= n_images < _MOST_IMAGES:
            raise AnswerError(
                "the masks of the sites do not cancel: they were told different things, or one of "
                "them does not do as it should"
            )
        return Sums(int(n_images), fields)


class _Field(Protocol):
    def put(self, part: slice, values: NDArray[np.float64]) -> None: ...

    def array(self) -> NDArray[np.float64]: ...


class _InMemory:
    """A field in memory."""

    def __init__(self, shape: Shape) -> None:
        self._array = np.empty(shape)

    def put(self, part: slice, values: NDArray[np.float64]) -> None:
        self._array.reshape(-1)[part] = values

    def array(self) -> NDArray[np.float64]:
        return self._array


class _OnDisk:
    """A field in a file of float32, which goes when nobody looks at it any more."""

    def __init__(self, shape: Shape) -> None:
        self._array: Any = empty_mapped(shape)

    def put(self, part: slice, values: NDArray[np.float64]) -> None:
        self._array.reshape(-1)[part] = values
        let_go(self._array)

    def array(self) -> NDArray[np.float64]:
        return np.asarray(self._array)
