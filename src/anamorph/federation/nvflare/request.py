"""What the coordinator's kit is told to do, and where the job tells what happens.

It is a file in the kit, since jobs ship nothing, and the process of a job is not the one that was
told.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.errors import ConsortiumError
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


@dataclass(frozen=True)
class StatisticsRequest:
    """Statistics of latents to find.

    Attributes
    ----------
    model, output : str
        Absolute paths of the model and of the table to write.
    groups : list of str
    group_by, weight_by : str or None
        As in `federated_statistics`.
    is_secure : bool
        Whether sites mask their sums.
    timeout : float or None
        Seconds that a site may take for an answer.
    """

    model: str
    output: str
    groups: list[str]
    group_by: str | None = None
    weight_by: str | None = None
    is_secure: bool = True
    timeout: float | None = None


Request = FitRequest | StatisticsRequest
_KINDS: dict[str, type[Request]] = {"fit": FitRequest, "statistics": StatisticsRequest}


def write_request(request: Request, kit: Kit) -> None:
    """Leave a request with the coordinator's kit."""
    (kind,) = (kind for kind, known in _KINDS.items() if isinstance(request, known))
    text = json.dumps({"kind": kind, **asdict(request)}, indent=2)
    _path(kit).write_text(text + "\n", encoding="utf-8")


def read_request(kit: Kit) -> Request:
    """Return the request that was left with a kit."""
    facts = json.loads(_path(kit).read_text(encoding="utf-8"))
    kind = facts.pop("kind", None)
    if kind not in _KINDS:
        raise ConsortiumError(
            f"{_path(kit)} must ask for one of {', '.join(_KINDS)}, got {kind!r}: give the command "
            "again"
        )
    return _KINDS[kind](**facts)


def events_path(kit: Kit) -> Path:
    """Return the file of events of a coordinator."""
    return kit.work / "events.jsonl"


def _path(kit: Kit) -> Path:
    return kit.work / "request.json"
