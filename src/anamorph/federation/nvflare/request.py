"""What the coordinator's kit is told to do, and where the job tells what happens.

It is a file in the kit, since jobs ship nothing, and the process of a job is not the one that was
told.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.kit import Kit


@dataclass(frozen=True)
class FitRequest:
    """A fit to do.

    Attributes
    ----------
    settings : dict
        Arguments of `ShapeAppearanceModel`.
    output, checkpoint : str
        Absolute paths of the model and of where the fit stands.
    is_secure : bool
        Whether sites mask their sums.
    timeout : float or None
        Seconds that a site may take for an answer.
    may_go_on_without : bool
        Whether the fit may go on without sites that are not in the job.
    """

    settings: dict[str, Any]
    output: str
    checkpoint: str
    is_secure: bool = True
    timeout: float | None = None
    may_go_on_without: bool = False

    def write(self, kit: Kit) -> None:
        """Leave this with the coordinator's kit."""
        _path(kit).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, kit: Kit) -> FitRequest:
        """Return what was left with a kit."""
        return cls(**json.loads(_path(kit).read_text(encoding="utf-8")))


def events_path(kit: Kit) -> Path:
    """Return the file of events of a coordinator."""
    return kit.work / "events.jsonl"


def _path(kit: Kit) -> Path:
    return kit.work / "request.json"
