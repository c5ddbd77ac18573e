"""How a site masks its answers: it offers a key for each attempt, agrees on masks, applies them."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.masking.fixed_point import check_range, to_fixed_point
from anamorph.federation.masking.pairwise import PairwiseMasks
from anamorph.federation.protocol.answers import Answer
from anamorph.federation.protocol.errors import MessageError, StaleStepError
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.wire import Message


class Masker:
    """The masks of the question that a site is answering, and its key for the next one.

    Parameters
    ----------
    identity : Identity
        Of the site.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._offered: PairwiseMasks | None = None
        self._agreed: PairwiseMasks | None = None
        self._exponents: dict[str, int] = {}
        self._n_sites = 0

    def offer(self, fit: str, step: int, attempt: int) -> Message:
        """Return a fresh public key, signed for one attempt at one step."""
        self._offered = PairwiseMasks(self._identity, fit, step, attempt)
        return {"step": step, "attempt": attempt, **self._offered.offer()}

    def agree(self, message: Message, answer: Answer, request: str) -> None:
        """Agree on masks for an answer with the other sites of a roster.

        Parameters
        ----------
        message : Message
            The question, with the roster, the keys and the exponents for all sites.
        answer : Answer
            It must fit the exponents: this is checked before any of it leaves.
        request : str
            Digest of the question, the same at all sites.
        """
        step, attempt, exponents = message["step"], message["attempt"], message["exponents"]
        if self._offered is None or self._offered.binding != (message["fit"], step, attempt):
            raise StaleStepError(f"no key was offered for attempt {attempt} at step {step}")
        for name in answer.schema.shapes:
            if not isinstance(exponents.get(name), int):
                raise MessageError(f"no exponent was agreed on for {name}")
            check_range(name, answer.largest[name], exponents[name])
        masks, self._offered = self._offered, None
        context = json.dumps([request, sorted(exponents.items())])
        masks.agree(message["roster"], message["keys"], context)
        self._agreed = masks
        self._exponents, self._n_sites = exponents, len(message["roster"])

    def masked_block(
        self, answer: Answer, index: int, step: int, attempt: int
    ) -> NDArray[np.uint64]:
        """Return a block of an answer with the masks that were agreed on for an attempt."""
        if self._agreed is None or self._agreed.binding[1:] != (step, attempt):
            raise StaleStepError(f"no masks were agreed on for attempt {attempt} at step {step}")
        block = np.empty(answer.schema.n_numbers(index), np.uint64)
        for piece, values in answer.pieces(index):
            exponent = self._exponents[piece.name]
            block[piece.in_block] = to_fixed_point(values, exponent, self._n_sites, piece.name)
        self._agreed.mask(block, index)
        return block
