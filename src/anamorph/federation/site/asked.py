"""A question that a site is answering, from the hash of its answer to its total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anamorph.federation.protocol.sketches import digest_of_arrays
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.part import Part
from anamorph.federation.site.replica import Question
from anamorph.federation.site.round import Round
from anamorph.fitting.limits import Limits
from anamorph.storage.modelfile import parameter_arrays


class Asked:
    """A question that is being answered, and the one before until its witnesses have spoken.

    Parameters
    ----------
    part : Part
        The fit or analysis.
    question : Question
    limits : Limits
        Of what an image contributes.
    current : Round
    before : Round or None
        That of the question before, whose total is used already but not confirmed by witnesses.

    Attributes
    ----------
    round : Round
    place : tuple
        Name of the fit, and step.
    is_given : bool
        Whether its total is used.
    """

    def __init__(
        self,
        part: Part,
        question: Question,
        limits: Limits,
        current: Round,
        before: Round | None,
    ) -> None:
        self.round = current
        self.place = current.binding.fit, current.binding.step
        self.is_given = False
        self._part, self._question, self._limits = part, question, limits
        self._before = before

    def accept_before(self, verdicts: Mapping[str, bytes]) -> None:
        """Check the verdicts on the question before, without which no block leaves."""
        if self._before is not None:
            self._before.accept(verdicts)
            self._before = None
            self._part.keep_held()

    def settle(
        self, checksums: Mapping[str, Message], masked: Mapping[str, object]
    ) -> bytes | None:
        """Check the checksums, and as a witness masked answers that come with them in one block."""
        for name, block in masked.items():
            self.round.witness(name, 0, block)
        return self.round.settle(checksums)

    def give(self, decisions: Sequence[bool]) -> None:
        """Give the total to the copy of the fit, if it is within bounds."""
        total = self.round.total()
        self._part.check_total(self._question, self._limits, total)
        fact = self.round.binding.data + self.round.total_digest
        self._part.give(self._question, total, decisions, fact)
        if self.round.is_accepted:
            self._part.keep_held()
        self.is_given = True

    @property
    def digest(self) -> str:
        """Digest of the total."""
        return self.round.total_digest.hex()

    @property
    def parameters_digest(self) -> str | None:
        """Digest of the parameters that this site answered with, None at the start."""
        if self._question.parameters is None:
            return None
        return digest_of_arrays(parameter_arrays(self._question.parameters))
