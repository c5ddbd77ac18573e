"""Requests: what the next job is to do, in a file of the coordinator's kit.

The command that submits a job and the process of the job share nothing but the kit, and jobs carry
no data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.kit import Kit, write_json
from anamorph.federation.protocol.errors import ConsortiumError


@dataclass(frozen=True)
class FitRequest:
    """A fit to run.

    Attributes
    ----------
    settings : dict
        Arguments of `ShapeAppearanceModel`.
    output, checkpoint : str
        Absolute paths of the model and of the checkpoint.
    is_secure : bool, default True
        Whether sites mask their sums.
    timeout : float or None, default None
        Seconds that a site may take for an answer. None: no limit.
    may_go_on_without : bool, default False
        Whether the fit may continue without sites that are not in the job.
    """

    settings: dict[str, Any]
    output: str
    checkpoint: str
    is_secure: bool = True
    timeout: float | None = None
    may_go_on_without: bool = False


@dataclass(frozen=True)
class StatisticsRequest:
    """Statistics of latents to compute.

    Attributes
    ----------
    model, output : str
        Absolute paths of the model and of the table to write.
    groups : list of str
    group_by, weight_by : str or None, default None
        As in `federated_statistics`.
    is_secure : bool, default True
        Whether sites mask their sums.
    timeout : float or None, default None
        Seconds that a site may take for an answer. None: no limit.
    privacy : dict or None, default None
        Fields of `PrivacyTerms`. None: exact statistics.
    """

    model: str
    output: str
    groups: list[str]
    group_by: str | None = None
    weight_by: str | None = None
    is_secure: bool = True
    timeout: float | None = None
    privacy: dict[str, float] | None = None


Request = FitRequest | StatisticsRequest
_KINDS: dict[str, type[Request]] = {"fit": FitRequest, "statistics": StatisticsRequest}


def write_request(request: Request, kit: Kit) -> None:
    """Write a request into the coordinator's kit, replacing an earlier one."""
    (kind,) = (kind for kind, known in _KINDS.items() if isinstance(request, known))
    write_json(_request_path(kit), {"kind": kind, **asdict(request)})


def read_request(kit: Kit) -> Request:
    """Return the request in a kit."""
    facts = json.loads(_request_path(kit).read_text(encoding="utf-8"))
    kind = facts.pop("kind", None)
    if kind not in _KINDS:
        raise ConsortiumError(
            f"{_request_path(kit)} must ask for one of {', '.join(_KINDS)}, got {kind!r}: run the "
            "command again"
        )
    return _KINDS[kind](**facts)


def events_path(kit: Kit) -> Path:
    """Return the path of the file in which jobs report events."""
    return kit.work / "events.jsonl"


def _request_path(kit: Kit) -> Path:
    return kit.work / "request.json"
