"""The ledger of a site: which fits it took part in, and for which roster it answered what.

Two totals over different rosters reveal their difference. Therefore a site answers the same request
(question, arguments, parameters and latents) for one roster only, and lets the roster of a fit
change only as often as its policy allows. The ledger is on disk, and survives a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.policy import Policy

# All analyses share one record, under a name that no fit can have. Otherwise a coordinator could
# give an analysis a new name and ask it again for another roster.
_ANALYSES = ""


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

    def count_fit(self, fit: str) -> None:
        """Count a fit, or refuse it if the limit is reached."""
        if self._fits[fit].is_counted:
            return
        if sum(record.is_counted for record in self._fits.values()) >= self._policy.fits:
            raise PolicyError(
                f"this site takes part in {self._policy.fits} fits with these images, and this "
                "would be one more: raise 'fits' in its policy to allow it"
            )
        self._write(fit=fit, counted=True)

    def count_analysis(self, fit: str) -> None:
        """Count a question of an analysis, or refuse it if the limit is reached."""
        if self._n_analyses >= self._policy.analyses:
            raise PolicyError(
                f"this site has answered all {self._policy.analyses} questions of analyses that "
                "its policy allows: raise 'analyses' to allow more"
            )
        self._write(fit=fit, analysis=True)

    def last_step(self, fit: str) -> int:
        """Return the highest step of a fit that this site has seen."""
        return self._fits[fit].last_step

    def note_step(self, fit: str, step: int) -> None:
        """Record that a fit has reached a step."""
        self._write(fit=fit, step=step)

    def admit(
        self,
        fit: str,
        step: int,
        content: str,
        roster: Sequence[str] | None,
        *,
        is_analysis: bool = False,
    ) -> None:
        """Record a question, or refuse it.

        Parameters
        ----------
        fit : str
            Name of the fit or analysis.
        step : int
        content : str
            Digest of everything that the answer depends on.
        roster : list of str, or None
            The sites whose masks hide the answer. None: it is not masked, or reveals nothing.
        is_analysis : bool, default False
            Whether the question belongs to an analysis. All analyses share one record.

        Raises
        ------
        RosterError
            If the same content was answered for another roster, or rosters changed too often.
        """
        line: dict[str, Any] = {"fit": fit, "step": step}
        if roster is not None:
            owner = _ANALYSES if is_analysis else fit
            self._check_roster(self._fits.get(owner, _FitRecord()), content, tuple(roster))
            line |= {"content": content, "roster": list(roster), "owner": owner}
        self._write(**line)

    def count_iteration(self, fit: str) -> None:
        """Count an iteration, or refuse it if the limit is reached."""
        if self._fits[fit].n_iterations >= self._policy.iterations:
            raise PolicyError(
                f"this site takes part in at most {self._policy.iterations} iterations of a fit"
            )
        self._write(fit=fit, iteration=True)

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
