"""The site's own copy of the fit: it computes parameters from verified totals alone.

The coordinator runs the same `Fit`. A site never takes parameters from it: it knows from its own
copy which question comes next and what it is about, and answers no other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from anamorph.federation.protocol.errors import FederationError, SiteFailure, VerificationError
from anamorph.fitting.em import Fit, falls
from anamorph.fitting.run import Checkpoints, Ending, run_fit
from anamorph.fitting.state import State
from anamorph.fitting.sums import Move, Sums
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Question:
    """What the fit wants to know next.

    Attributes
    ----------
    name : str
    parameters : Parameters or None
        Computed here. None at the start.
    move : Move or None
        Of the latents.
    arguments : dict
    """

    name: str
    parameters: Parameters | None
    move: Move | None
    arguments: dict[str, Any]


class _Abandoned(BaseException):
    """Ends the thread of a replica that is not needed any more."""


class Replica:
    """A fit in a thread of its own, which stops at every question until it is given the total.

    Parameters
    ----------
    settings : Settings
    seed : int
        Of the starting latents.
    ending : Ending
    checkpoints : function
        From the fit to the `Checkpoints` that it reads its state from and writes its states to.
    at_end : callable
        Called with the state at the end of the fit.
    """

    def __init__(
        self,
        settings: Settings,
        seed: int,
        ending: Ending,
        checkpoints: Callable[[Fit], Checkpoints],
        at_end: Callable[[State], None],
    ) -> None:
        self._asked: queue.Queue[Question | BaseException | None] = queue.Queue(1)
        self._answered: queue.Queue[Sums | None] = queue.Queue(1)
        self._parameters: Parameters | None = None
        self._decisions: list[bool] = []
        self._question: Question | None = None
        self._is_abandoned = False

        def run() -> None:
            fit = Fit(self, settings, self._judge)
            try:
                at_end(
                    run_fit(fit, seed, ending, tell=lambda _: None, checkpoints=checkpoints(fit))
                )
                self._asked.put(None)
            except _Abandoned:
                pass
            except BaseException as error:
                self._asked.put(error)

        # It inherits the number of threads that computations use.
        context = copy_context()
        self._thread = threading.Thread(target=lambda: context.run(run), daemon=True)

    # ---- what the agent does

    def next_question(self) -> Question | None:
        """Return the question that waits for its total, None at the end of the fit."""
        if self._thread.ident is None:  # not started yet
            self._thread.start()
            self._question = self._wait()
        return self._question

    def give(self, total: Sums, decisions: Sequence[bool]) -> Question | None:
        """Give the verified total of the question, and run to the next.

        Parameters
        ----------
        total : Sums
        decisions : list of bool
            Which steps the coordinator took after this total, in order. They count only where
            rounding could turn the decision.

        Returns
        -------
        Question or None
            None at the end of the fit.
        """
        self._decisions = list(decisions)
        self._answered.put(total)
        self._question = self._wait()
        if self._decisions:
            raise VerificationError("the coordinator decides on steps that this fit does not try")
        return self._question

    def abandon(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._is_abandoned = True
            self._answered.put(None)
            self._thread.join()

    def _wait(self) -> Question | None:
        asked = self._asked.get()
        if isinstance(asked, BaseException):
            if isinstance(asked, FederationError):
                raise asked
            raise SiteFailure("the copy of the fit at this site failed") from asked
        return asked

    # ---- what the fit does (`fitting.sites.Sites`)

    def publish(self, parameters: Parameters) -> None:
        """Take note of the parameters that the next questions are about."""
        self._parameters = parameters

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Wait for the verified total of a question."""
        self._asked.put(Question(question, self._parameters, move, arguments))
        total = self._answered.get()
        if total is None:
            raise _Abandoned
        return total

    def _judge(self, before: float, after: float) -> bool:
        """Tell whether a step is taken: as the coordinator did, where both would be right."""
        if not self._decisions:
            raise VerificationError("the coordinator does not say whether it took a step")
        was_taken = self._decisions.pop(0)
        if falls(before, after, share=2.0):
            own = False
        elif not falls(before, after, share=0.0):
            own = True
        else:  # rounding could turn it
            return was_taken
        if own != was_taken:
            raise VerificationError(
                f"the coordinator {'took' if was_taken else 'skipped'} a step that this site, from "
                "the same totals, would not have"
            )
        return own
