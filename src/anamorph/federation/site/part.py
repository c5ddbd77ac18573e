"""What a fit and an analysis at one site have in common: a question, its bounds and its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from anamorph.federation.protocol.agreement import Agreement
from anamorph.federation.protocol.answers import Answer, AnswerSchema
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.questions import answer_shapes
from anamorph.federation.site.replica import Question
from anamorph.fitting.limits import Limits
from anamorph.fitting.sums import Sums
from anamorph.model.settings import Settings


class Part(ABC):
    """A site's part in a fit or in an analysis.

    Parameters
    ----------
    settings : Settings
    agreement : Agreement
    roster : tuple of str, optional
        By default nobody is asked yet.

    Attributes
    ----------
    roster : tuple of str
        The sites that take part.
    transcript : str
        Digest of all that led to the next question.
    """

    def __init__(
        self, settings: Settings, agreement: Agreement, roster: tuple[str, ...] = ()
    ) -> None:
        self.roster = roster
        self.transcript = ""
        self._settings, self._agreement = settings, agreement
        self._bounds = Bounds(settings, agreement.largest)

    @abstractmethod
    def question(self) -> Question:
        """Return the question that comes next."""

    @abstractmethod
    def content(self, question: Question) -> str:
        """Return the digest of everything that the answer depends on here."""

    @abstractmethod
    def answer(self, question: Question, limits: Limits) -> Answer:
        """Answer a question, with contributions of images within limits."""

    def limits(self, question: Question) -> Limits:
        """Return the limits of what an image contributes to the answer."""
        return self._bounds.limits(question.name, question.parameters)

    def schema(self, question: Question) -> AnswerSchema:
        """Return the schema of the answer."""
        return AnswerSchema(answer_shapes(question.name, self._settings, question.arguments))

    def exponents(self, question: Question, limits: Limits) -> dict[str, int]:
        """Return the fixed-point ranges of the answer."""
        n_images = self._agreement.n_images(self.roster)
        return self._bounds.exponents(question.name, limits, self.schema(question), n_images)

    def check_total(self, question: Question, limits: Limits, total: Sums) -> None:
        """Raise a VerificationError if a total exceeds its bounds."""
        self._bounds.check_total(question.name, limits, total, self._n_images(total))

    def _n_images(self, total: Sums) -> int:
        """Return the number of images that a total must be about."""
        return self._agreement.n_images(self.roster)

    @abstractmethod
    def give(self, question: Question, total: Sums, decisions: Sequence[bool], fact: bytes) -> None:
        """Use a verified total for what follows from it.

        Parameters
        ----------
        question : Question
        total : Sums
        decisions : list of bool
            Which steps the coordinator took.
        fact : bytes
            The question and the digest of its total, for the transcript.
        """

    @abstractmethod
    def keep_held(self) -> None:
        """Write what waited for the witnesses to confirm the last total."""
