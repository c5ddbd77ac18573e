"""What the coordinator's program does in a job: the fit that its kit was told to do.

The request is a file in the kit, since jobs ship nothing, and the process of a job is not the one
that was told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.errors import FederationError, SitesLostError
from anamorph.federation.fit import Terms, federated_fit
from anamorph.federation.nvflare.events import EventWriter
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.transport import Transport
from anamorph.io.errors import ModelFileError
from anamorph.kernels.threads import one_blas_thread, use_threads
from anamorph.model import ShapeAppearanceModel


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
        _request_path(kit).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def run_task(kit: Kit, transport: Transport) -> None:
    """Do what the kit was told to do with the sites of a job, and tell what happens."""
    events = EventWriter(events_path(kit))
    request = FitRequest(**json.loads(_request_path(kit).read_text(encoding="utf-8")))
    try:
        events.write("began", sites=list(transport.names))
        _fit(request, transport, transport.names, events)
    except SitesLostError as error:
        events.write("lost", text=str(error))
        raise  # which ends calls that still wait for an answer
    except (FederationError, ModelFileError, OSError, ValueError) as error:
        events.write("refused", text=str(error))
    except Exception as error:
        events.write("failed", text=f"{type(error).__name__}: {error}")
        raise


def events_path(kit: Kit) -> Path:
    """Return the file of events of a coordinator."""
    return kit.work / "events.jsonl"


def _fit(
    request: FitRequest, transport: Transport, sites: Sequence[str], events: EventWriter
) -> None:
    # Calls to sites that died are noticed in the job, but only a new job takes them back.
    terms = Terms(
        is_secure=request.is_secure,
        timeout=request.timeout,
        patience=0.0,
        may_go_on_without=request.may_go_on_without,
    )
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in request.settings.items()}
    model = ShapeAppearanceModel(**given)
    with use_threads(model.n_threads), one_blas_thread:
        result = federated_fit(
            model,
            transport,
            sites,
            terms,
            checkpoint=request.checkpoint,
            callback=lambda progress: events.write("iteration", **asdict(progress)),
        )
    model.save(request.output)
    events.write("done", **asdict(result))


def _request_path(kit: Kit) -> Path:
    return kit.work / "request.json"
