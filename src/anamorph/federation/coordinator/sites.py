"""The sites of a federation as the fit sees them: one question in, one verified total out.

A site that does not answer, or cannot continue from the state of the others, ends the question with
a `SitesLostError`; the caller decides what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Float64Array
from anamorph.federation.coordinator.calls import call_sites
from anamorph.federation.coordinator.round import Round
from anamorph.federation.protocol.agreement import Agreement
from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.binding import Binding, concluded_transcript
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.plan import analysis_transcript
from anamorph.federation.protocol.questions import answer_shapes
from anamorph.federation.protocol.sketches import summary
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.protocol.wire import BLOCK_BYTES, Message
from anamorph.fitting.em import falls
from anamorph.fitting.run import Ending
from anamorph.fitting.sums import Move, Sums
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameter_arrays


class FederatedSites:
    """Sites behind a transport that answer as one (`fitting.sites.Sites`).

    Parameters
    ----------
    transport : Transport
        Connects the sites.
    settings : Settings
        Settings of the fit.
    fit : str
        Name of the fit, the same when it is resumed.
    holdings : dict
        What each site signed about its images, by name.
    is_secure : bool, default True
        Whether sites mask their sums. The coordinator then sees only totals.
    timeout : float, optional
        Seconds that a site may take for an answer. By default there is no limit.

    Attributes
    ----------
    roster : tuple of str
        Names of the sites that take part.
    step : int
        Number of the last question.
    transcript : str
        Digest of all that led to the next question.
    bounds : Bounds
        Of what an image contributes.
    n_questions, n_calls : int
        How many questions were asked, and how often sites were called.
    """

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        fit: str,
        holdings: Mapping[str, Message],
        *,
        is_secure: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.roster: tuple[str, ...] = ()
        self.step = 0
        self.n_questions = self.n_calls = 0
        self.transcript = ""
        self.holdings, self.agreement = dict(holdings), Agreement.of(holdings)
        self.bounds = Bounds(settings, self.agreement.largest)
        self._transport, self._settings, self._fit = transport, settings, fit
        self._is_secure, self._timeout = is_secure, timeout
        self._offers: dict[str, Message] = {}
        self._parameters: Parameters | None = None
        self._model: Float64Array | None = None
        self._is_new = False
        self._decisions: list[bool] = []
        self._last: Round | None = None

    # ---- the roster, and the state to start from

    def join(self, names: Sequence[str], seed: int, ending: Ending) -> dict[str, list[int]]:
        """Ask the named sites to take part; return which states each of them has.

        Parameters
        ----------
        names : list of str
        seed : int
            Of the starting latents.
        ending : Ending
        """
        self.roster = tuple(sorted(names))
        replies = self._call_all(
            "join",
            settings=asdict(self._settings),
            seed=seed,
            n_iter=ending.n_iter,
            tol=ending.tol,
            holdings=self.holdings,
        )
        self.step = max([self.step, *(int(reply["step"]) for reply in replies.values())])
        return {name: list(reply["iterations"]) for name, reply in replies.items()}

    def restore(self, iteration: int) -> None:
        """Make all sites go back to the state after an iteration; 0: the beginning."""
        self.step += 1
        replies = self._call_all(
            "restore", step=self.step, iteration=iteration, roster=list(self.roster)
        )
        self._begin({name: reply["offer"] for name, reply in replies.items()})

    def _begin(self, offers: dict[str, Message]) -> None:
        self._offers, self._last = offers, None
        self._decisions, self._parameters = [], None

    def send_state(
        self, name: str, iteration: int, arrays: Mapping[str, NDArray[Any]], facts: Message
    ) -> None:
        """Send a site that was away a state, which the others confirm.

        Parameters
        ----------
        name : str
        iteration : int
            After which the state was.
        arrays, facts
            What it consists of (`site.returning`).
        """
        for array, values in arrays.items():
            for block in _blocks_of(values):
                self._call("adopt", {name: {"array": array, **block}})
        told = {name: {"iteration": iteration, "facts": facts}}
        nonce = self._call("adopted", told)[name]["nonce"]
        others = [other for other in self.roster if other != name]
        wanted = {"iteration": iteration, "nonce": nonce}
        sketches = self._call("sketch", dict.fromkeys(others, wanted))
        self.step += 1
        message = {"step": self.step, "roster": list(self.roster), "sketches": sketches}
        self._call("confirm", {name: message})

    def open_model(self, names: Sequence[str], parameters: Parameters) -> None:
        """Ask the named sites to open a model that they have computed, for an analysis."""
        self.roster = tuple(sorted(names))
        self._model = summary(parameter_arrays(parameters))
        message = {
            "summary": self._model,
            "roster": list(self.roster),
            "holdings": self.holdings,
        }
        replies = self._call_all("open", step=1, **message)
        self.step = max(int(reply["step"]) for reply in replies.values())
        if any(reply["step"] != self.step for reply in replies.values()):
            replies = self._call_all("open", step=self.step + 1, **message)
            self.step = max(int(reply["step"]) for reply in replies.values())
        self._begin({name: reply["offer"] for name, reply in replies.items()})
        self._parameters = parameters

    # ---- questions and sums

    def publish(self, parameters: Parameters) -> None:
        """Note the parameters of the next questions. Sites compute their own: none are sent."""
        self._parameters, self._is_new = parameters, True

    def judge(self, before: float, after: float) -> bool:
        """Tell whether a step is taken, and note the decision for the sites' copies of the fit."""
        is_taken = not falls(before, after)
        self._decisions.append(is_taken)
        return is_taken

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all sites' answers to a question, verified by all of them.

        Of a fit they know its moves and arguments themselves; an analysis has others.
        """
        self.step += 1
        self.n_questions += 1
        is_analysis = question == "statistics"
        schema = AnswerSchema(answer_shapes(question, self._settings, arguments))
        limits = self.bounds.limits(question, self._parameters)
        n_images = self.agreement.n_images(self.roster)
        binding = Binding(
            self._fit,
            self.step,
            question,
            self.roster,
            self._is_secure,
            self._transcript_of(arguments, is_analysis),
            self.bounds.exponents(question, limits, schema, n_images),
        )
        current = Round(binding, schema, self._call, self._offers)
        verdicts = current.ask(
            {
                "question": question,
                "arguments": arguments if is_analysis else {},
                "roster": list(self.roster),
                "is_masked": self._is_secure,
                "exponents": dict(binding.exponents),
                "offers": self._offers,
                "decisions": self._decisions,
                "summary": self._summary(),
            },
            self._last,
        )
        self._decisions = []
        total = current.add_up(verdicts if self._last is not None else {})
        self._offers, self._last = current.next_offers, current
        self.bounds.check_total(
            question, limits, total, total.n_images if is_analysis else n_images
        )
        return self.bounds.learn(question, total, self._parameters)

    def _current_transcript(self, decisions: Sequence[bool]) -> str:
        """Return the transcript with the last question and what was decided after it."""
        if self._last is not None:
            self.transcript = concluded_transcript(self.transcript, self._last.fact, decisions)
        return self.transcript

    def _transcript_of(self, arguments: Mapping[str, Any], is_analysis: bool) -> str:
        """Return the digest of all that led to a question."""
        if not is_analysis:
            return self._current_transcript(self._decisions)
        assert self._model is not None
        return analysis_transcript(self._fit, self.agreement, self._model, arguments)

    def complete(self) -> None:
        """Have sites use the last total, and keep their state after the iteration."""
        if self._last is None:
            return
        verdicts = self._last.settle()
        decisions, self._decisions = self._decisions, []
        self._call_all("keep", step=self.step, decisions=decisions, verdicts=verdicts)
        self._current_transcript(decisions)
        self._last = None

    def _summary(self) -> NDArray[Any] | None:
        """Return a summary of the parameters if they are new, for sites to compare."""
        if self._parameters is None or not self._is_new:
            return None
        self._is_new = False
        return summary(parameter_arrays(self._parameters))

    # ---- calls

    def _call_all(self, task: str, **facts: Any) -> dict[str, Message]:
        return self._call(task, dict.fromkeys(self.roster, facts))

    def _call(self, task: str, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Give sites tasks of the fit, and count the call."""
        self.n_calls += 1
        head = {"do": task, "fit": self._fit}
        same = {id(facts): head | facts for facts in messages.values()}
        told = {name: same[id(facts)] for name, facts in messages.items()}
        return call_sites(self._transport, told, self._timeout)


def _blocks_of(array: NDArray[Any]) -> Iterator[Message]:
    """Yield the messages that hold an array in parts of at most a block."""
    flat = np.ascontiguousarray(array).reshape(-1)
    length = BLOCK_BYTES // flat.itemsize
    for start in range(0, max(len(flat), 1), length):
        yield {"start": start, "values": flat[start : start + length]}
