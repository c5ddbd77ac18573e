"""How a site masks its answers: one occasion per attempt at a question, each key used once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.masking.identity import Identity
from anamorph.federation.masking.secure_sum import Occasion, to_fixed_point
from anamorph.federation.protocol.answers import Answer
from anamorph.federation.protocol.errors import (
    AnswerError,
    MessageError,
    StaleStepError,
    SumOverflowError,
)
from anamorph.federation.protocol.wire import Message


class Masking:
    """The masks of the question that a site is answering, and the key for the next.

    Parameters
    ----------
    identity : Identity
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._offered: tuple[tuple[str, int, int], Occasion] | None = None
        self._current: tuple[int, int] | None = None
        self._occasion: Occasion | None = None
        self._exponents: dict[str, int] = {}
        self._n_sites = 0

    def offer(self, fit: str, step: int, attempt: int) -> Message:
        """Return a fresh public key, signed for one attempt at one step."""
        occasion = Occasion(self._identity, fit, step, attempt)
        self._offered = ((fit, step, attempt), occasion)
        offer: dict[str, Any] = {"step": step, "attempt": attempt, **occasion.offer()}
        return offer

    def agree(self, message: Message, answer: Answer, request: str) -> None:
        """Agree on masks for an answer with the sites of a roster.

        Parameters
        ----------
        message : Message
            The question, with the roster, the keys and the scales that all agree on.
        answer : Answer
        request : str
            Stands for what is asked, the same at all sites.
        """
        step, attempt = message["step"], message["attempt"]
        exponents = message["exponents"]
        if self._offered is None or self._offered[0] != (message["fit"], step, attempt):
            raise StaleStepError(f"no key was offered for attempt {attempt} at step {step}")
        for name in answer.row.shapes:
            if not isinstance(exponents.get(name), int):
                raise MessageError(f"no scale was agreed on for {name}")
            if not np.isfinite(answer.largest[name]):
                raise AnswerError(f"{name} is not finite at this site: nothing is answered")
            if answer.largest[name] >= 2.0 ** exponents[name]:
                raise SumOverflowError(
                    f"{name} is not below 2^{exponents[name]} at this site: agree on more"
                )
        occasion, self._offered = self._offered[1], None
        context = json.dumps([request, sorted(exponents.items())])
        occasion.agree(message["roster"], message["keys"], context)
        self._occasion, self._current = occasion, (step, attempt)
        self._exponents, self._n_sites = exponents, len(message["roster"])

    def check(self, step: int, attempt: int) -> None:
        """Raise a StaleStepError unless masks were agreed on for this attempt at this step."""
        if self._current != (step, attempt):
            raise StaleStepError(f"no masks were agreed on for attempt {attempt} at step {step}")

    def block(self, answer: Answer, index: int) -> NDArray[np.uint64]:
        """Return a masked block of an answer."""
        if self._occasion is None:
            raise StaleStepError("no masks were agreed on")
        block = np.empty(answer.row.n_numbers(index), np.uint64)
        for piece, values in answer.pieces(index):
            exponent = self._exponents[piece.name]
            block[piece.here] = to_fixed_point(values, exponent, self._n_sites, piece.name)
        self._occasion.mask(block, index)
        return block
