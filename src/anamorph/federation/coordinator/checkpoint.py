"""The coordinator's checkpoint: where a fit stands, and which step of the sites goes with it.

It holds no latents: sites keep their own, by the number of the step. To resume, the coordinator
takes all sites back to that step. If the sites are not the same as before, their latents are
updated first (`Fit.regroup`): otherwise two totals of the same latents would reveal the difference.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import let_go
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.fitting.em import Fit
from anamorph.fitting.state import State
from anamorph.storage.checkpoint import check_fingerprint, check_state, state_from, state_tensors
from anamorph.storage.tensors import read_tensors, write_tensors

logger = logging.getLogger("anamorph")

_KIND, _VERSION = "federation checkpoint", 1


@dataclass(frozen=True)
class Standing:
    """Where a fit across sites stands.

    Attributes
    ----------
    state : State
    step : int
        After this step the latents of the sites are those of the state, or those before its turn
        if it has one.
    roster : tuple of str
        The sites that the state is about.
    notes : tuple of str
        One for each change of the roster so far, for people: which sites left and came back.
    """

    state: State
    step: int
    roster: tuple[str, ...]
    notes: tuple[str, ...] = ()


class FederatedCheckpoints:
    """Where a fit across sites stands: in memory, and in a file (`fitting.run.Checkpoints`).

    Parameters
    ----------
    fit : Fit
    sites : FederatedSites
        Those of the fit.
    name : str
        Of the fit.
    names : sequence of str
        The sites to start with.
    seed : int
        Of the starting latents.
    path : path, optional
        By default the fit is kept in memory only.

    Attributes
    ----------
    standing : Standing or None
        None before the start.
    roster : tuple of str
        The sites that take part when the fit starts or resumes.
    """

    def __init__(
        self,
        fit: Fit,
        sites: FederatedSites,
        name: str,
        names: Sequence[str],
        seed: int,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._fit, self._sites, self._seed = fit, sites, seed
        self._name, self._path = name, path
        self.standing: Standing | None = None
        self.roster = tuple(sorted(names))
        if path is not None and os.path.exists(path):
            self.standing = _read_standing(path, name)
            self.roster = self.standing.roster
            sites.keep_from = self.standing.step

    def __str__(self) -> str:
        return "its last iteration" if self._path is None else os.fspath(self._path)

    def read(self) -> State | None:
        """Return the state to resume from, with the sites of the roster at its latents."""
        if self.standing is not None:
            return self.resume_with(self.roster)
        self._sites.join(self.roster)
        self._sites.restore(0)
        return None

    def write(self, state: State) -> None:
        """Keep a state; then let sites drop the latents of the states before."""
        is_start = state.turn is None
        step = self._sites.step if is_start else self._sites.step_before_turn
        standing = self.standing or Standing(state, step, self._sites.roster)
        self.standing = replace(standing, state=state, step=step)
        if self._path is not None and not is_start:
            self._write_file(self._path, self.standing)
        self._sites.keep_from = step

    def _write_file(self, path: str | os.PathLike[str], standing: Standing) -> None:
        arrays, facts = state_tensors(standing.state)
        facts |= {
            "fingerprint": self._name,
            "n_images": standing.state.latents.n_images,
            "site_step": standing.step,
            "roster": list(standing.roster),
            "notes": list(standing.notes),
            "n_roster_changes": len(standing.notes),
        }
        write_tensors(path, _KIND, _VERSION, arrays, facts)
        let_go(*arrays.values())

    def resume_with(self, roster: Sequence[str]) -> State:
        """Go back to where the fit stands, with the same sites or with others."""
        standing = self.standing
        assert standing is not None
        self._sites.join(roster)
        if set(roster) == set(standing.roster):
            self._sites.restore(standing.step)
            return standing.state
        if standing.state.objective:
            self._sites.restore(standing.step, may_encode=True)
            state = self._fit.regroup(standing.state)
        else:  # latents are still random numbers: start again with others
            self._sites.restore(0)
            start = standing.state.parameters
            state = self._fit.start_from(start.mean, start.noise_precision, self._seed)
        note = _noted_change(standing, roster)
        logger.warning("%s", note)
        self.roster = self._sites.roster
        self.standing = Standing(state, self._sites.step, self.roster, (*standing.notes, note))
        return state


def _noted_change(standing: Standing, roster: Sequence[str]) -> str:
    left = sorted(set(standing.roster) - set(roster))
    came = sorted(set(roster) - set(standing.roster))
    changes = [f"without {name}" for name in left] + [f"with {name} again" for name in came]
    return f"after iteration {len(standing.state.objective)}: on {', '.join(changes)}"


def _read_standing(path: str | os.PathLike[str], fit: str) -> Standing:
    """Return what is in a checkpoint of this fit; large arrays stay in the file until used."""
    arrays, facts = read_tensors(path, _KIND, _VERSION, is_large)
    check_fingerprint(path, facts, fit)
    check_state(path, arrays, facts, has_latents=False)
    state = state_from(arrays, facts, facts["n_images"])
    return Standing(state, facts["site_step"], tuple(facts["roster"]), tuple(facts["notes"]))
