"""Algorithm 1 on sums over images: sites answer questions, and a fit sees nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anamorph.fitting.cohort import Cohort
    from anamorph.fitting.em import Fit
    from anamorph.fitting.placement import place_cohort
    from anamorph.fitting.progress import Progress
    from anamorph.fitting.run import Checkpoints, Ending, run_fit
    from anamorph.fitting.sites import LocalSites, Sites
    from anamorph.fitting.state import State
    from anamorph.fitting.sums import Move, Sums

__all__ = [
    "Checkpoints",
    "Cohort",
    "Ending",
    "Fit",
    "LocalSites",
    "Move",
    "Progress",
    "Sites",
    "State",
    "Sums",
    "place_cohort",
    "run_fit",
]

# Imported when they are first asked for: they load Numba.
_HOMES = {
    "Checkpoints": "anamorph.fitting.run",
    "Cohort": "anamorph.fitting.cohort",
    "Ending": "anamorph.fitting.run",
    "Fit": "anamorph.fitting.em",
    "LocalSites": "anamorph.fitting.sites",
    "Move": "anamorph.fitting.sums",
    "Progress": "anamorph.fitting.progress",
    "Sites": "anamorph.fitting.sites",
    "State": "anamorph.fitting.state",
    "Sums": "anamorph.fitting.sums",
    "place_cohort": "anamorph.fitting.placement",
    "run_fit": "anamorph.fitting.run",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
