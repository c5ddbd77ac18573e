"""The coordinator's program in a job: it runs the fit or analysis that its kit requests."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.description import Description, described
from anamorph.federation.coordinator.fit import Terms, federated_fit
from anamorph.federation.coordinator.statistics import (
    federated_statistics,
    summarised,
    write_statistics,
)
from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.refusals import refusals_about
from anamorph.federation.nvflare.request import (
    FitRequest,
    StatisticsRequest,
    events_path,
    read_request,
)
from anamorph.federation.nvflare.transport import CollabTransport
from anamorph.federation.protocol.errors import ConsortiumError, FederationError, SitesLostError
from anamorph.federation.protocol.privacy import PrivacyTerms
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.site.append_only import JsonLines
from anamorph.kernels.threads import one_blas_thread, use_threads
from anamorph.storage.errors import ModelFileError


class CoordinatorProgram:
    """Runs as long as the job, and reports events in a file of the kit."""

    @collab.main
    def run(self) -> None:
        """Run the request with the sites of the job."""
        kit = open_kit(Path(collab.workspace.get_root_dir()), as_site=False)
        events = JsonLines(events_path(kit), "the file of events")  # the driver reads it
        transport = CollabTransport()
        try:
            request = read_request(kit)
            transport.introduce_sites({name: refusals_about(kit, name) for name in kit.sites})
            events.append(kind="began", sites=list(transport.names))
            if isinstance(request, FitRequest):
                _fit(request, transport, events)
            else:
                _find_statistics(request, transport, events)
        except SitesLostError as error:
            events.append(kind="lost", text=str(error))
            raise  # to end the calls that still wait for an answer
        except (FederationError, ModelFileError, OSError, ValueError) as error:
            events.append(kind="refused", text=str(error))
        except Exception as error:
            events.append(kind="failed", text=f"{type(error).__name__}: {error}")
            raise


def _fit(request: FitRequest, transport: Transport, events: JsonLines) -> None:
    # No patience: only the next job can take back a site that died.
    terms = Terms(
        is_secure=request.is_secure,
        timeout=request.timeout,
        patience=0.0,
        may_go_on_without=request.may_go_on_without,
    )
    model = _model(request, described(transport, transport.names, request.timeout))
    with use_threads(model.n_threads), one_blas_thread:
        result = federated_fit(
            model,
            transport,
            transport.names,
            terms,
            checkpoint=request.checkpoint,
            callback=lambda progress: events.append(kind="iteration", **asdict(progress)),
        )
    model.save(request.output)
    events.append(
        kind="done",
        n_images=model.origin_.n_images,
        n_iterations=model.n_iter_,
        objective=model.objective_[-1],
        seconds=sum(model.origin_.seconds),
        **asdict(result),
    )


def _find_statistics(request: StatisticsRequest, transport: Transport, events: JsonLines) -> None:
    groups = federated_statistics(
        ShapeAppearanceModel.load(request.model),
        transport,
        transport.names,
        request.groups,
        group_by=request.group_by,
        weight_by=request.weight_by,
        is_secure=request.is_secure,
        timeout=request.timeout,
        privacy=None if request.privacy is None else PrivacyTerms(**request.privacy),
    )
    write_statistics(Path(request.output), groups)
    events.append(kind="done", roster=list(transport.names), groups=summarised(groups))


def _model(request: FitRequest, description: Description) -> ShapeAppearanceModel:
    """Return the model to fit, with the likelihood of the sites' images."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
        for name, value in request.settings.items()
    }
    likelihood = description.format.likelihood
    if given.setdefault("likelihood", likelihood) != likelihood:
        raise ConsortiumError(
            f"the settings are for {given['likelihood']} images, but the sites have {likelihood} "
            f"images: start the sites with --likelihood {given['likelihood']}"
        )
    return ShapeAppearanceModel(**given)
