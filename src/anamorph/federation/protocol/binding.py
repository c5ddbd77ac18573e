"""What a question is bound to: it is part of every signature, of every mask and of the challenge.

Parameters of the sites may differ by rounding, so they cannot be compared by their digests.
The transcript can: it is a digest of the settings, the roster's images and all totals so far, from
which every site computes its own parameters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Binding:
    """One question to one roster. It is asked once.

    Attributes
    ----------
    fit : str
        Name of the fit or analysis.
    step : int
        Number of the question; numbers only grow, also when a question is repeated.
    question : str
    roster : tuple of str
        Names of the sites whose answers are added up, in order.
    is_masked : bool
        Whether sites mask their answers.
    transcript : str
        Digest of everything that led to the question.
    exponents : dict
        Fixed-point range of each field.
    """

    fit: str
    step: int
    question: str
    roster: tuple[str, ...]
    is_masked: bool
    transcript: str
    exponents: Mapping[str, int]

    @cached_property
    def data(self) -> bytes:
        """The same as bytes."""
        facts = vars(self) | {"exponents": sorted(self.exponents.items())}
        return json.dumps([facts[name] for name in self.__dataclass_fields__]).encode()

    def statement(self, kind: str, site: str, *facts: str | int | bytes) -> bytes:
        """Return what a site signs about this question.

        Parameters
        ----------
        kind : str
            What is stated, e.g. "answer".
        site : str
            Who states it.
        *facts
            What else the statement says.
        """
        return statement(kind, site, self.data, *facts)


def statement(kind: str, site: str, *facts: str | int | bytes) -> bytes:
    """Return what a site signs; statements of different kinds never have the same bytes."""
    plain = [fact.hex() if isinstance(fact, bytes) else fact for fact in facts]
    return json.dumps([f"anamorph {kind}", site, *plain]).encode()


def concluded_transcript(transcript: str, fact: bytes, decisions: Sequence[bool]) -> str:
    """Return the transcript after a question.

    Parameters
    ----------
    transcript : str
    fact : bytes
        The question and the digest of its total.
    decisions : list of bool
        Which steps were taken after it. Where rounding could turn a step, the coordinator decides:
        without this, it could tell each site something else, and single one out.
    """
    return next_transcript(transcript, fact, bytes(decisions))


def next_transcript(transcript: str, *facts: bytes) -> str:
    """Return the transcript after some facts."""
    digest = hashlib.blake2b(transcript.encode(), digest_size=32)
    for fact in facts:
        digest.update(len(fact).to_bytes(8, "little") + fact)
    return digest.hexdigest()
