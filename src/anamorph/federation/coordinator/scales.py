"""Scales of masked sums, agreed on before anyone knows the values: from the totals of before.

A field starts with a wide range. Its total tells how wide it need be, with room for sites whose
values cancel in the total; where the first range was so wide that little of the total is left,
the same question is asked once more. No site says anything about the size of its own values, but
that they do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from anamorph.federation.masking.secure_sum import fraction_bits
from anamorph.federation.protocol.answers import N_IMAGES

_WIDE, _NARROW = 40, 10  # exponents to begin with, and for totals of which nothing was left
_ROOM = 12
_LEAST_BITS = 32


class Scales:
    """Exponents of all fields of all questions: values are below 2 to the power of them."""

    def __init__(self) -> None:
        self._exponents: dict[tuple[str, str], int] = {}

    def exponents(self, question: str, names: Iterable[str]) -> dict[str, int]:
        """Return the exponents to agree on for a question."""
        return {
            name: _WIDE if name == N_IMAGES else self._exponents.get((question, name), _WIDE)
            for name in names
        }

    def widen(self, question: str, names: Iterable[str]) -> None:
        """Make room after an overflow."""
        for name, exponent in self.exponents(question, names).items():
            self._exponents[question, name] = exponent + _ROOM

    def learn(self, question: str, largest: Mapping[str, float], n_sites: int) -> bool:
        """Learn from a total; return whether it was too coarse and must be asked again.

        Parameters
        ----------
        question : str
        largest : dict
            Largest absolute value of each field of the total.
        n_sites : int
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
