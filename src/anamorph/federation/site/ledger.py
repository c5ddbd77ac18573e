"""The ledger of a site: which fits it took part in, and for which roster it answered what.

Two totals over different rosters give away their difference. Hence a site answers about the same
thing (question, arguments, parameters and latents) for one roster only, and lets the roster of a
fit change only as often as its policy says. The ledger is on disk, so that a site that is started
again remembers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError, StorageError
from anamorph.federation.site.lines import append_line, whole_lines
from anamorph.federation.site.policy import Policy

# What analyses were answered for is kept together, under a name that no fit can have: a
# coordinator that calls each of them by another name does not get another roster for it.
_ANALYSES = ""


@dataclass
class _FitRecord:
    """What a site remembers of a fit."""

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
    policy : Policy
    """

    def __init__(self, path: Path, policy: Policy) -> None:
        self._path, self._policy = path, policy
        self._fits: dict[str, _FitRecord] = {}
        self._n_analyses = 0
        for line in whole_lines(path):
            self._apply(json.loads(line))

    def begin(self, fit: str) -> None:
        """Note a fit down."""
        if fit not in self._fits:
            self._write({"fit": fit})

    def count_fit(self, fit: str) -> None:
        """Count a fit, unless that would be one too many."""
        if self._fits[fit].is_counted:
            return
        if sum(record.is_counted for record in self._fits.values()) >= self._policy.fits:
            raise PolicyError(
                f"this site takes part in {self._policy.fits} fits with these images, and this "
                "would be another: raise 'fits' in its policy to allow it"
            )
        self._write({"fit": fit, "counted": True})

    def count_analysis(self, fit: str) -> None:
        """Count a question of an analysis, unless that would be one too many."""
        if self._n_analyses >= self._policy.analyses:
            raise PolicyError(
                f"this site answers {self._policy.analyses} questions of analyses, and did: raise "
                "'analyses' in its policy to allow more"
            )
        self._write({"fit": fit, "analysis": True})

    def last_step(self, fit: str) -> int:
        """Return the highest step that was ever asked in a fit."""
        return self._fits[fit].last_step

    def note_step(self, fit: str, step: int) -> None:
        """Note down that a fit has come to a step."""
        self._write({"fit": fit, "step": step})

    def admit(
        self,
        fit: str,
        step: int,
        content: str,
        roster: Sequence[str] | None,
        *,
        is_analysis: bool = False,
    ) -> None:
        """Note a question down, or refuse it.

        Parameters
        ----------
        fit : str
        step : int
        content : str
            Stands for all that the answer depends on; the same question again has the same.
        roster : list of str, or None
            For whom the answer is masked; None where it is not, or holds nothing.
        is_analysis : bool
            Whether it is a question of an analysis, and counts with those of all others.
        """
        line: dict[str, Any] = {"fit": fit, "step": step}
        if roster is not None:
            owner = _ANALYSES if is_analysis else fit
            self._check_roster(self._fits.get(owner, _FitRecord()), content, tuple(roster))
            line |= {"content": content, "roster": list(roster), "owner": owner}
        self._write(line)

    def count_iteration(self, fit: str) -> None:
        """Note an iteration down, unless that would be one too many."""
        if self._fits[fit].n_iterations >= self._policy.iterations:
            raise PolicyError(
                f"this site takes part in at most {self._policy.iterations} iterations of a fit"
            )
        self._write({"fit": fit, "iteration": True})

    def _check_roster(self, record: _FitRecord, content: str, roster: tuple[str, ...]) -> None:
        before = record.rosters.get(content)
        if before is not None and before != roster:
            raise RosterError(
                f"this was answered for {', '.join(before)} and is not answered for "
                f"{', '.join(roster)}: the difference would show the sums of single sites"
            )
        is_change = record.roster is not None and record.roster != roster
        if is_change and record.n_roster_changes >= self._policy.roster_changes:
            raise RosterError(
                f"the sites of a fit, or of analyses, may change {self._policy.roster_changes} "
                "times, and did"
            )

    def _write(self, line: dict[str, Any]) -> None:
        try:
            append_line(self._path, json.dumps(line))
        except OSError as error:
            raise StorageError(
                f"the ledger of this site cannot be written ({error.strerror}): nothing is answered"
            ) from None
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
