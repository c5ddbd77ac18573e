"""The coordinator's checkpoint: where a fit stands after an iteration, and with which sites.

It holds no latents: sites keep theirs with their own copy of the state. To resume, the coordinator
takes all sites back to that iteration. If the sites are not the same as before, their latents are
updated first (`Fit.regroup`): otherwise two totals of the same latents would reveal the difference.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import let_go
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.errors import SitesLostError
from anamorph.federation.protocol.plan import Plan, regrouped_transcript
from anamorph.federation.protocol.shared_state import shared_arrays, shared_facts
from anamorph.federation.protocol.wire import Message
from anamorph.fitting.em import Fit
from anamorph.fitting.state import State
from anamorph.storage.checkpoint import check_fingerprint, check_state, state_from, state_tensors
from anamorph.storage.tensors import read_tensors, write_tensors

logger = logging.getLogger("anamorph")

_KIND, _VERSION = "federation checkpoint", 2


@dataclass(frozen=True)
class Standing:
    """Where a fit across sites stands.

    Attributes
    ----------
    state : State
    roster : tuple of str
        The sites of its last iteration.
    transcript : str
        Digest of all that led there.
    norms : dict
        Usual norms of derivatives, by question (`Bounds.norms`).
    notes : tuple of str
        One for each change of the roster so far, for people: which sites left and came back.
    """

    state: State
    roster: tuple[str, ...]
    transcript: str
    norms: Mapping[str, list[float]]
    notes: tuple[str, ...] = ()

    @property
    def n_done(self) -> int:
        """Number of iterations."""
        return len(self.state.objective)


class FederatedCheckpoints:
    """Where a fit across sites stands: in memory, and in a file (`fitting.run.Checkpoints`).

    Parameters
    ----------
    fit : Fit
    sites : FederatedSites
        Those of the fit.
    plan : Plan
    path : path, optional
        By default the fit is kept in memory only.

    Attributes
    ----------
    standing : Standing or None
        None before the first iteration is complete.
    roster : tuple of str
        The sites that take part when the fit starts or resumes.
    """

    def __init__(
        self,
        fit: Fit,
        sites: FederatedSites,
        plan: Plan,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._fit, self._sites, self._plan, self._path = fit, sites, plan, path
        self._note = ""
        self.standing: Standing | None = None
        self.roster = tuple(sorted(plan.agreement.counts))
        if path is not None and os.path.exists(path):
            self.standing = _read_standing(path, plan.name)
            # A site that was revoked since is not among those of the plan.
            self.roster = tuple(n for n in self.standing.roster if n in plan.agreement.counts)

    def __str__(self) -> str:
        return "its last iteration" if self._path is None else os.fspath(self._path)

    def read(self) -> State | None:
        """Return the state to resume from, with the sites of the roster at its latents."""
        if self.standing is not None:
            return self.resume_with(self.roster)
        self._sites.join(self.roster, self._plan.seed, self._plan.ending)
        self._sites.transcript = self._plan.transcript
        self._sites.bounds = Bounds(self._plan.settings, self._plan.agreement.largest)
        self._sites.restore(0)
        return None

    def write(self, state: State) -> None:
        """Have all sites keep their state, then keep this one."""
        self._sites.complete()
        if state.turn is None:  # starting again takes no longer than the first question
            return
        notes = () if self.standing is None else self.standing.notes
        self.standing = Standing(
            state,
            self._sites.roster,
            self._sites.transcript,
            dict(self._sites.bounds.norms),
            (*notes, self._note) if self._note else notes,
        )
        self._note = ""
        if self._path is not None:
            self._write_file(self._path, self.standing)

    def _write_file(self, path: str | os.PathLike[str], standing: Standing) -> None:
        arrays, facts = state_tensors(standing.state)
        facts |= {
            "fingerprint": self._plan.name,
            "n_images": standing.state.latents.n_images,
            "roster": list(standing.roster),
            "transcript": standing.transcript,
            "norms": dict(standing.norms),
            "notes": list(standing.notes),
            "holdings": _as_json(self._sites.holdings),
        }
        write_tensors(path, _KIND, _VERSION, arrays, facts)
        let_go(*arrays.values())

    def resume_with(self, roster: Sequence[str]) -> State:
        """Go back to where the fit stands, with the same sites or with others."""
        standing = self.standing
        assert standing is not None
        states = self._sites.join(roster, self._plan.seed, self._plan.ending)
        for name in self._sites.roster:
            if standing.n_done not in states[name]:
                self._send_state(standing, name)
        self._sites.bounds = Bounds(
            self._plan.settings, self._plan.agreement.largest, standing.norms
        )
        self._sites.transcript = standing.transcript
        self._sites.restore(standing.n_done)
        if self._sites.roster == standing.roster:
            return standing.state
        self._sites.transcript = regrouped_transcript(standing.transcript, self._sites.roster)
        self._note = _noted_change(standing, roster)
        logger.warning("%s", self._note)
        self.roster = self._sites.roster
        return self._fit.regroup(standing.state)

    def _send_state(self, standing: Standing, name: str) -> None:
        """Send a site that was away where the fit stands."""
        if name in standing.roster:
            raise SitesLostError({name: f"it has lost its state after iteration {standing.n_done}"})
        state = standing.state
        facts = shared_facts(state, standing.transcript, standing.norms, standing.roster)
        self._sites.send_state(name, standing.n_done, shared_arrays(state), facts)


def _noted_change(standing: Standing, roster: Sequence[str]) -> str:
    left = sorted(set(standing.roster) - set(roster))
    came = sorted(set(roster) - set(standing.roster))
    changes = [f"without {name}" for name in left] + [f"with {name} again" for name in came]
    return f"after iteration {standing.n_done}: on {', '.join(changes)}"


def _as_json(holdings: Mapping[str, Message]) -> dict[str, Any]:
    return {name: held | {"signature": held["signature"].hex()} for name, held in holdings.items()}


def read_holdings(path: str | os.PathLike[str]) -> dict[str, Message]:
    """Return what sites signed about their images when a fit began, from its checkpoint."""
    _, facts = read_tensors(path, _KIND, _VERSION, lambda _: True)
    return {
        name: held | {"signature": bytes.fromhex(held["signature"])}
        for name, held in facts["holdings"].items()
    }


def _read_standing(path: str | os.PathLike[str], fit: str) -> Standing:
    """Return what is in a checkpoint of this fit; large arrays stay in the file until used."""
    arrays, facts = read_tensors(path, _KIND, _VERSION, is_large)
    check_fingerprint(path, facts, fit)
    check_state(path, arrays, facts, has_latents=False)
    return Standing(
        state_from(arrays, facts, facts["n_images"]),
        tuple(facts["roster"]),
        facts["transcript"],
        facts["norms"],
        tuple(facts["notes"]),
    )
