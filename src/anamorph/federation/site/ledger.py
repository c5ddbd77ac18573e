"""The ledger of a site: which fits it took part in, and for which roster it answered what.

Two totals over different rosters reveal their difference. Therefore a site answers the same request
(question, arguments, parameters and latents) for one roster only, and lets the roster of a fit
change only as often as its policy allows. The ledger is on disk, and survives a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.policy import Policy
from anamorph.fitting.sums import ANALYSES

# All analyses share one record, under a name that no fit can have. Otherwise a coordinator could
# give an analysis a new name and ask it again for another roster.
_ANALYSES = ""
# Empty answers, and sums of random numbers that do not depend on the images: anyone may see them.
_HARMLESS = ("start_latents", "transform_latents", "keep_displacements")


@dataclass
class _FitRecord:
    """The record of one fit."""

    last_step: int = 0
    roster: tuple[str, ...] | None = None
    n_roster_changes: int = 0
    n_iterations: int = 0
    is_counted: bool = False
    rosters: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Ledger:
    """What a site has answered, in a file of JSON lines.

    Parameters
    ----------
    path : Path
        Read if it exists: limits also hold after a restart.
    policy : Policy
        Sets the limits.
    """

    def __init__(self, path: Path, policy: Policy) -> None:
        self._lines, self._policy = JsonLines(path, "the ledger of this site"), policy
        self._fits: dict[str, _FitRecord] = {}
        self._n_analyses = 0
        for line in self._lines.read():
            self._apply(line)

    def begin(self, fit: str) -> None:
        """Record that a fit exists."""
        if fit not in self._fits:
            self._write(fit=fit)

    def count(self, fit: str, question: str) -> None:
        """Count what the policy limits: fits, their iterations, and questions of analyses.

        Raises
        ------
        PolicyError
            If the limit is reached.
        """
        record, policy = self._fits[fit], self._policy
        if question in ANALYSES:
            if self._n_analyses >= policy.analyses:
                raise PolicyError(
                    f"this site has answered all {policy.analyses} questions of analyses that "
                    "its policy allows: raise 'analyses' to allow more"
                )
            self._write(fit=fit, analysis=True)
        elif not record.is_counted:
            if sum(known.is_counted for known in self._fits.values()) >= policy.fits:
                raise PolicyError(
                    f"this site takes part in {policy.fits} fits with these images, and this "
                    "would be one more: raise 'fits' in its policy to allow it"
                )
            self._write(fit=fit, counted=True)
        if question == "update_latents":
            if record.n_iterations >= policy.iterations:
                raise PolicyError(
                    f"this site takes part in at most {policy.iterations} iterations of a fit"
                )
            self._write(fit=fit, iteration=True)

    def last_step(self, fit: str) -> int:
        """Return the highest step of a fit that this site has seen."""
        return self._fits[fit].last_step

    def note_step(self, fit: str, step: int) -> None:
        """Record that a fit has reached a step."""
        self._write(fit=fit, step=step)

    def admit(self, message: Message, content: str) -> None:
        """Record a question, or refuse what would reveal single sites.

        Parameters
        ----------
        message : Message
            The question, with its fit, its step and the roster of sites that are asked. The masks
            of the roster hide the answer, if the message has keys.
        content : str
            Digest of everything that the answer depends on.

        Raises
        ------
        RosterError
            If the same content was answered for another roster, or rosters changed too often.
        """
        fit, question = message["fit"], message["question"]
        line: dict[str, Any] = {"fit": fit, "step": message["step"]}
        if message["keys"] is not None and question not in _HARMLESS:
            owner, roster = _ANALYSES if question in ANALYSES else fit, sorted(message["roster"])
            self._check_roster(self._fits.get(owner, _FitRecord()), content, tuple(roster))
            line |= {"content": content, "roster": roster, "owner": owner}
        self._write(**line)

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
        self._lines.append(**line)
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        record = self._fits.setdefault(line["fit"], _FitRecord())
        record.last_step = max(record.last_step, line.get("step", 0))
        record.n_iterations += bool(line.get("iteration"))
        record.is_counted |= bool(line.get("counted"))
        self._n_analyses += bool(line.get("analysis"))
        if "roster" in line:
            roster = tuple(line["roster"])
            record = self._fits.setdefault(line["owner"], _FitRecord())
            record.n_roster_changes += record.roster is not None and record.roster != roster
            record.roster = roster
            record.rosters[line["content"]] = roster
