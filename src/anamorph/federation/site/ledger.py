"""The ledger of a site: the fits it took part in, and for which roster it answered what.

A line is on the disk before anything that it is about leaves the site, and survives a restart:

- A step is taken once. Steps only grow, so no key, mask or answer is ever used for two questions.
- Two totals over different rosters reveal their difference: the same content (question, transcript
  and latents) is answered for one roster only, and the policy limits how often rosters change.
- A fit whose totals could not be verified is stopped for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError, StaleStepError
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.budget import YEAR, Budget, Spending
from anamorph.federation.site.policy import Policy
from anamorph.fitting.sums import ANALYSES

# All analyses share one record, under a name that no fit can have. Otherwise a coordinator could
# give an analysis a new name and ask it again for another roster.
_ANALYSES = ""
# Names under which a fit or analysis began within a year, and no question was asked. Each takes
# space on the disk: whoever may begin without end may fill it.
_MOST_UNASKED = 20
# Empty answers, and sums of random numbers that do not depend on the images: anyone may see them.
_HARMLESS = ("start_latents", "transform_latents", "keep_displacements")


@dataclass
class _FitRecord:
    """The record of one fit."""

    last_step: int = 0
    began: float = 0.0
    is_asked: bool = False
    n_returns: int = 0
    n_adopted: int = 0
    counts: dict[str, int] | None = None
    roster: tuple[str, ...] | None = None
    n_roster_changes: int = 0
    n_iterations: int = 0
    is_counted: bool = False
    n_iter: int | None = None
    plan: str | None = None
    stopped: str = ""
    rosters: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Ledger:
    """What a site has answered, in a file of JSON lines.

    Parameters
    ----------
    path : Path
        Read if it exists: limits also hold after a restart.
    policy : Policy
        Sets the limits.
    clock : callable, default `time.time`
        Seconds since 1970 (UTC).
    """

    def __init__(self, path: Path, policy: Policy, clock: Callable[[], float] = time.time) -> None:
        self._lines, self._policy = JsonLines(path, "the ledger of this site"), policy
        self._fits: dict[str, _FitRecord] = {}
        self._budget, self._clock = Budget(policy), clock
        for line in self._lines.read():
            self._apply(line)

    def check_refusals(self) -> None:
        """Raise a PolicyError if this site has refused so often that it answers nothing more."""
        self._budget.check_refusals(self._clock())

    def note_refusal(self) -> None:
        """Record a refusal."""
        if self._budget.remaining("refusal", self._clock()):
            self._write(fit=_ANALYSES, spent=["refusal"])

    def begin(self, fit: str, counts: dict[str, int], n_iter: int | None, plan: str) -> None:
        """Record a fit or analysis, how many images its sites have, and its iterations.

        Parameters
        ----------
        fit : str
        counts : dict
            Number of images by name of the site.
        n_iter : int or None
            None: an analysis.
        plan : str
            Digest of what stays the same whenever the fit is resumed. Otherwise a budget of one fit
            would be one of as many fits as there are seeds.

        Raises
        ------
        PolicyError
            If the fit was stopped, or began with other numbers or another plan, or if no more may
            begin.
        """
        record = self._fits.get(fit)
        if record is not None and record.stopped:
            raise PolicyError(
                f"fit {fit} was stopped here for good ({record.stopped}): find out why, then "
                "start another fit"
            )
        began = {} if record is None or record.counts is None else record.counts
        # Sites may leave for good, but none may come or change its number.
        if began and any(began.get(name) != number for name, number in counts.items()):
            raise PolicyError(f"fit {fit} began with other numbers of images: they are fixed")
        if record is not None and record.plan not in (None, plan):
            raise PolicyError(
                f"{fit} began here with other settings or another seed, or as an analysis: they "
                "are fixed"
            )
        if not began:
            self._check_beginning("fit" if n_iter is not None else "analysis")
        if not began or record is None or (record.n_iter, record.plan) != (n_iter, plan):
            self._write(fit=fit, counts=began or counts, n_iter=n_iter, plan=plan)

    def _check_beginning(self, kind: str) -> None:
        """Raise a PolicyError if no more fits or analyses may begin."""
        now = self._clock()
        self._budget.check(kind, now)
        unasked = [
            record
            for record in self._fits.values()
            if record.counts is not None and not record.is_asked and record.began > now - YEAR
        ]
        if len(unasked) >= _MOST_UNASKED:
            raise PolicyError(
                f"{_MOST_UNASKED} fits and analyses began here within a year, and were not asked "
                "a single question: no more begin; see the audit log of this site"
            )

    def stop(self, fit: str, reason: str) -> None:
        """Record that a fit is stopped for good."""
        self._write(fit=fit, stopped=reason)

    def take_step(self, fit: str, step: int) -> None:
        """Record that a fit takes a step, which must be higher than all before."""
        last = self.last_step(fit)
        if step <= last:
            raise StaleStepError(f"step {step} was taken before: this site has reached {last}")
        record = self._fits[fit]
        most = self._policy.most_questions(record.n_iter or 0)
        if record.n_returns >= most:
            raise PolicyError(
                f"this site has begun {fit} or gone back in it {most} times: start another one"
            )
        self._write(fit=fit, step=step)

    def adopt(self, fit: str) -> None:
        """Record that this site takes over a state of the others, or refuse it.

        A state may differ by rounding from that of the others. Two that differ, and totals under
        each, tell about this site alone: as often as the roster changes is enough.
        """
        most = self._policy.roster_changes
        if self._fits[fit].n_adopted >= most:
            # Not a refusal of the fit, which continues without this site.
            raise StaleStepError(f"this site has come back to {fit} {most} times, the most it may")
        self._write(fit=fit, adopted=True)

    def last_step(self, fit: str) -> int:
        """Return the highest step of a fit that this site has seen."""
        return self._fits[fit].last_step

    def admit(
        self, fit: str, step: int, question: str, roster: tuple[str, ...], content: str
    ) -> None:
        """Record a question before it is answered, or refuse what the policy does not allow.

        Parameters
        ----------
        fit : str
        step : int
            Higher than all before.
        question : str
        roster : tuple of str
            The sites that are asked.
        content : str
            Digest of everything that the answer depends on.

        Raises
        ------
        PolicyError
            If a limit is reached.
        RosterError
            If the same content was answered for another roster, or rosters changed too often.
        """
        line: dict[str, Any] = {"fit": fit, "step": step, "question": question}
        if step <= self.last_step(fit):
            raise StaleStepError(f"step {step} was taken before")
        line["spent"] = self._spending(fit, question)
        if question not in _HARMLESS:
            owner = _ANALYSES if question in ANALYSES else fit
            self._check_roster(self._fits.get(owner, _FitRecord()), content, roster)
            line |= {"content": content, "roster": list(roster), "owner": owner}
        self._write(**line)

    def _spending(self, fit: str, question: str) -> list[str]:
        """Return what a question costs, or raise a PolicyError if a budget does not allow it."""
        record, policy, now = self._fits[fit], self._policy, self._clock()
        kinds = ["question"]
        if question in ANALYSES:
            kinds.append("analysis")
        elif not record.is_counted:
            kinds.append("fit")
        for kind in kinds:
            self._budget.check(kind, now, fit=fit, n_iterations=record.n_iter)
        most = policy.most_iterations(record.n_iter)
        if question == "update_latents" and record.n_iterations >= most:
            raise PolicyError(
                f"this site takes part in at most {most} iterations of this fit, those that are "
                "done again included"
            )
        return kinds

    def _check_roster(self, record: _FitRecord, content: str, roster: tuple[str, ...]) -> None:
        before = record.rosters.get(content)
        if before is not None and before != roster:
            raise RosterError(
                f"this was answered for {', '.join(before)} and is not answered for "
                f"{', '.join(roster)}: the difference would reveal the sums of single sites"
            )
        is_change = record.roster is not None and record.roster != roster
        if is_change and record.n_roster_changes >= self._policy.roster_changes:
            raise RosterError(
                f"the roster of a fit, or of analyses, may change {self._policy.roster_changes} "
                "times, and has done so"
            )

    def _write(self, **line: Any) -> None:
        line = {"time": self._clock(), **line}
        self._lines.append(**line)
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        record = self._fits.setdefault(line["fit"], _FitRecord())
        record.last_step = max(record.last_step, line.get("step", 0))
        record.is_asked |= "question" in line
        record.n_returns += "step" in line and "question" not in line
        record.n_adopted += "adopted" in line
        record.began = record.began or line.get("time", 0.0)
        record.n_iterations += line.get("question") == "update_latents"
        record.n_iter = line.get("n_iter", record.n_iter)
        record.plan = line.get("plan", record.plan)
        spent = line.get("spent", ["fit"] if line.get("counted") else [])  # version 0.1
        for kind in spent:
            self._budget.spend(Spending(line.get("time", 0.0), kind, line["fit"]))
            record.is_counted |= kind == "fit"
        record.stopped = line.get("stopped", record.stopped)
        record.counts = line.get("counts", record.counts)
        if "roster" in line:
            roster = tuple(line["roster"])
            record = self._fits.setdefault(line["owner"], _FitRecord())
            record.n_roster_changes += record.roster is not None and record.roster != roster
            record.roster = roster
            record.rosters[line["content"]] = roster
