"""The budgets of a site: how many questions, refusals, fits and analyses a year may bring.

A pure decision on dated records, which the ledger of the site keeps. Refusals count too: a refusal
tells something about the data where it depends on them, and whoever may be refused without end may
ask without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anamorph.federation.protocol.errors import PolicyError

if TYPE_CHECKING:
    from anamorph.federation.site.policy import Policy

#: What a budget counts, and the rule of the policy that limits it over a year.
YEARLY = {"question": "questions_per_year", "refusal": "refusals_per_year"}
#: What a budget counts over all time, and the rule that limits it.
FOR_EVER = {"fit": "fits", "analysis": "analyses"}
KINDS = (*YEARLY, *FOR_EVER)

YEAR = 365.25 * 24 * 3600.0


@dataclass(frozen=True)
class Spending:
    """One dated record of what a site has spent.

    Attributes
    ----------
    time : float
        Seconds since 1970 (UTC).
    kind : {"question", "refusal", "fit", "analysis"}
        A fit is spent once, when it begins. An analysis is spent besides the question that it asks.
    fit : str, default ""
        Name of the fit or analysis that it belongs to.
    """

    time: float
    kind: str
    fit: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")


@dataclass
class Budget:
    """Decides, from all that was spent before, whether more may be spent.

    Attributes
    ----------
    policy : Policy
        Sets the limits.
    spent : list of Spending, default empty
        In the order in which it was spent. Whoever keeps them on a disk adds each by `spend`
        before the answer leaves.

    Examples
    --------
    >>> budget = Budget(Policy(), records_of_the_ledger)            # doctest: +SKIP
    >>> budget.check("question", now, fit="fit1", n_iterations=20)  # doctest: +SKIP
    """

    policy: Policy
    spent: list[Spending] = field(default_factory=list)

    def check(
        self, kind: str, now: float, *, fit: str = "", n_iterations: int | None = None
    ) -> None:
        """Raise a PolicyError if no more of a kind may be spent.

        Parameters
        ----------
        kind : {"question", "refusal", "fit", "analysis"}
            What is to be spent. For "refusal", the error takes the place of the refusal, and is
            the same for every message: it tells nothing.
        now : float
            Seconds since 1970 (UTC).
        fit : str, default ""
            Name of the fit; questions of one fit are limited too.
        n_iterations : int, optional
            Most iterations of that fit, as it was announced. By default, or for analyses, only
            the limits over a year hold.
        """
        self.check_refusals(now)
        rule = (YEARLY | FOR_EVER)[kind]
        most = getattr(self.policy, rule)
        if kind != "refusal" and self.count(kind, now) >= most:
            period = "within a year" if kind in YEARLY else "in all"
            raise PolicyError(
                f"this site allows {most} {_PLURALS[kind]} {period} and has had them: raise "
                f"{rule!r} in its policy to allow more"
            )
        if kind == "question" and n_iterations is not None:
            self._check_questions_of(fit, n_iterations)

    def check_refusals(self, now: float) -> None:
        """Raise a PolicyError if a site has refused so often that it answers nothing more."""
        most = self.policy.refusals_per_year
        if self.count("refusal", now) >= most:
            raise PolicyError(
                f"this site has refused {most} messages within a year and answers no more: see its "
                "audit log, and raise 'refusals_per_year' in its policy if they were harmless"
            )

    def spend(self, spending: Spending) -> None:
        """Take note of what was spent. No check is made: call `check` before."""
        self.spent.append(spending)

    def spend_all(self, records: Iterable[Spending]) -> None:
        """Take note of what was spent before, as read from a disk."""
        self.spent.extend(records)

    def count(self, kind: str, now: float) -> int:
        """Return how much of a kind counts now: of the last year, or of all time.

        A record from the future counts: whoever sets the clock back gains nothing.
        """
        is_yearly = kind in YEARLY
        return sum(
            record.kind == kind and (not is_yearly or record.time > now - YEAR)
            for record in self.spent
        )

    def remaining(self, kind: str, now: float) -> int:
        """Return how much of a kind may still be spent."""
        most: int = getattr(self.policy, (YEARLY | FOR_EVER)[kind])
        return max(0, most - self.count(kind, now))

    def _check_questions_of(self, fit: str, n_iterations: int) -> None:
        most = self.policy.most_questions(n_iterations)
        rule = "questions_per_fit" if most == self.policy.questions_per_fit else "n_iter"
        asked = sum(record.kind == "question" and record.fit == fit for record in self.spent)
        if asked >= most:
            raise PolicyError(
                f"this site answers {most} questions of a fit of {n_iterations} iterations, and "
                f"has answered them: raise {rule!r} to allow more"
            )


_PLURALS = {
    "question": "questions",
    "refusal": "refusals",
    "fit": "different fits",
    "analysis": "questions of analyses",
}
