"""At a site: say in its terminal when the coordinator is there, and when a fit begins and ends."""

from __future__ import annotations

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext

_TEXTS = {
    EventType.AFTER_CLIENT_REGISTER: "Connected to the coordinator",
    EventType.BEFORE_JOB_LAUNCH: "The coordinator begins a job",
    EventType.JOB_COMPLETED: "The job has ended; waiting for the next one",
}


class Announcer(FLComponent):  # type: ignore[misc]
    """Prints what happens to a site."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Say what has happened, if it is of interest."""
        if event_type in _TEXTS:
            print(_TEXTS[event_type], flush=True)
