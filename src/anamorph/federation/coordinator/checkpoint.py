"""The coordinator's checkpoint: where a fit stands, and which step of the sites goes with it.

It holds no latents: sites keep their own, by the number of the step.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.mapped import let_go
from anamorph.fitting.em import State
from anamorph.storage.checkpoint import check_fingerprint, state_from, state_tensors
from anamorph.storage.tensors import read_tensors, write_tensors

_KIND, _VERSION = "federation checkpoint", 1


@dataclass(frozen=True)
class Standing:
    """Where a fit across sites stands.

    Attributes
    ----------
    state : State
    step : int
        After which the latents of the sites are those that go with the state (from before its
        turn, where it has one).
    roster : tuple of str
        The sites that the state is about.
    notes : tuple of str
        What happened to sites so far, for people.
    n_roster_changes : int
    """

    state: State
    step: int
    roster: tuple[str, ...]
    notes: tuple[str, ...] = ()
    n_roster_changes: int = 0


def write_standing(path: str | os.PathLike[str], fit: str, standing: Standing) -> None:
    """Write a checkpoint."""
    arrays, facts = state_tensors(standing.state)
    facts |= {
        "fingerprint": fit,
        "n_images": standing.state.latents.n_images,
        "site_step": standing.step,
        "roster": list(standing.roster),
        "notes": list(standing.notes),
        "n_roster_changes": standing.n_roster_changes,
    }
    write_tensors(path, _KIND, _VERSION, arrays, facts)
    let_go(*arrays.values())


def read_standing(path: str | os.PathLike[str], fit: str) -> Standing:
    """Return what is in a checkpoint of this fit; large arrays stay there until they are used."""
    arrays, facts = read_tensors(path, _KIND, _VERSION, is_large)
    check_fingerprint(path, facts, fit)
    return Standing(
        state_from(arrays, facts, facts["n_images"]),
        facts["site_step"],
        tuple(facts["roster"]),
        tuple(facts["notes"]),
        facts["n_roster_changes"],
    )
