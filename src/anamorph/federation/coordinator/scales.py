"""Fixed-point ranges of masked sums, chosen from earlier totals before the values are known.

Every field starts with a wide range. Its total shows how wide the range must be, with some room for
sites whose values cancel in the total. If the first range was so wide that few bits of the total
remain, the same question is asked once more. A site never reveals the size of its own values,
except that they do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from anamorph.federation.masking.fixed_point import fraction_bits
from anamorph.federation.protocol.answers import N_IMAGES

_WIDE, _NARROW = 40, 10  # exponents at the start, and for totals that are zero
_ROOM = 12  # bits above the total
_LEAST_BITS = 32  # that a total must have, or it is too coarse


class Scales:
    """The exponent e of every field of every question: its values must be below 2^e."""

    def __init__(self) -> None:
        self._exponents: dict[tuple[str, str], int] = {}

    def exponents(self, question: str, names: Iterable[str]) -> dict[str, int]:
        """Return the exponents for the next attempt at a question, by name of the field."""
        return {
            name: _WIDE if name == N_IMAGES else self._exponents.get((question, name), _WIDE)
            for name in names
        }

    def widen(self, question: str, names: Iterable[str]) -> None:
        """Widen the ranges of a question after an overflow."""
        for name, exponent in self.exponents(question, names).items():
            self._exponents[question, name] = exponent + _ROOM

    def learn(self, question: str, largest: Mapping[str, float], n_sites: int) -> bool:
        """Choose the next ranges of a question from its total.

        Parameters
        ----------
        question : str
        largest : dict
            Largest absolute value of each field of the total.
        n_sites : int
            How many sites were added up.

        Returns
        -------
        bool
            Whether the total was too coarse, and the question must be asked again.
        """
        is_coarse = False
        for name, used in self.exponents(question, largest).items():
            if largest[name]:
                exponent = math.frexp(largest[name])[1]
                wanted = exponent + _ROOM
                is_coarse |= exponent + fraction_bits(used, n_sites) < _LEAST_BITS
            else:
                wanted = min(used, _NARROW)
                is_coarse |= used > _NARROW
            self._exponents[question, name] = wanted
        return is_coarse
