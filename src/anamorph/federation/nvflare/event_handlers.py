"""Handlers of NVFLARE's own events: the coordinator's admits sites, a site's prints what happens.

A certificate of the consortium's authority is needed to reach the coordinator at all. `Doorkeeper`
also refuses certificates that the authority issued later, to parties outside the consortium.
"""

from __future__ import annotations

from collections.abc import Sequence

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.private.defs import ClientType

_ANNOUNCEMENTS = {
    EventType.AFTER_CLIENT_REGISTER: "Connected to the coordinator",
    EventType.BEFORE_JOB_LAUNCH: "The coordinator begins a job",
    EventType.JOB_COMPLETED: "The job has ended; waiting for the next one",
}


class Doorkeeper(FLComponent):  # type: ignore[misc]
    """Refuses the registration of parties that are not on a list, at the coordinator.

    Parameters
    ----------
    sites : sequence of str
        Names of the sites of the consortium.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        super().__init__()
        self.sites = tuple(sites)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Check the name of a party that registers."""
        is_site = fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.REGULAR
        if event_type != EventType.CLIENT_REGISTER_RECEIVED or not is_site:
            return
        peer = fl_ctx.get_peer_context()
        name = peer.get_identity_name() if peer is not None else None
        if name not in self.sites:
            raise NotAuthenticated(f"{name} is not a site of this consortium")


class Announcer(FLComponent):  # type: ignore[misc]
    """Prints in a site's terminal when it connects, and when a job begins and ends."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Print an event of interest."""
        if event_type in _ANNOUNCEMENTS:
            print(_ANNOUNCEMENTS[event_type], flush=True)
