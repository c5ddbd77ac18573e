"""At the coordinator: whoever is not a site of the consortium does not come in.

A certificate of the consortium's authority is needed to get here at all. This refuses certificates
that were made for somebody else since.
"""

from __future__ import annotations

from collections.abc import Sequence

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.private.defs import ClientType


class Doorkeeper(FLComponent):  # type: ignore[misc]
    """Refuses the registration of parties that are not in a list.

    Parameters
    ----------
    sites : sequence of str
    """

    def __init__(self, sites: Sequence[str]) -> None:
        super().__init__()
        self.sites = tuple(sites)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Look at who registers."""
        is_site = fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.REGULAR
        if event_type != EventType.CLIENT_REGISTER_RECEIVED or not is_site:
            return
        peer = fl_ctx.get_peer_context()
        name = peer.get_identity_name() if peer is not None else None
        if name not in self.sites:
            raise NotAuthenticated(f"{name} is not a site of this consortium")
