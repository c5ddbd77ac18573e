"""Handlers of NVFLARE's own events: the coordinator's admits sites, a site's prints what happens.

A certificate of the consortium's authority is needed to reach the coordinator at all. `Doorkeeper`
also refuses names that are not, or no longer, in the members file, and a second site of a name.
"""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.private.defs import ClientType

from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.refusals import record_refusal
from anamorph.federation.protocol.errors import FederationError

_ANNOUNCEMENTS = {
    EventType.AFTER_CLIENT_REGISTER: "Connected to the coordinator",
    EventType.BEFORE_JOB_LAUNCH: "The coordinator begins a job",
    EventType.JOB_COMPLETED: "The job has ended; waiting for the next one",
}
_START = "anamorph_start"  # what tells apart two processes with the same name
_SILENCE = 8.0  # seconds in which a site that is alive sends a heartbeat, also on a busy computer
_LOOK = 0.2


class Doorkeeper(FLComponent):  # type: ignore[misc]
    """Refuses the registration of parties that are not members, or run already.

    A site that was killed and starts again is let in once the first one has been silent for some
    seconds.

    Parameters
    ----------
    folder : str
        The coordinator's kit.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[str, float]] = {}  # start and time of the last sign of life

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Check a party that registers, and note a sign of life."""
        peer = fl_ctx.get_peer_context()
        if peer is None:
            return
        name, start = str(peer.get_identity_name()), str(peer.get_prop(_START, ""))
        if event_type == EventType.CLIENT_HEARTBEAT_RECEIVED:
            self._hear(name, start)
        is_site = fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.REGULAR
        if event_type == EventType.CLIENT_REGISTER_RECEIVED and is_site:
            refusal = self._refusal(name, start)
            if refusal is not None:
                record_refusal(open_kit(Path(self.folder), as_site=False), refusal, name)
                raise NotAuthenticated(refusal)

    def _hear(self, name: str, start: str) -> None:
        with self._lock:
            known, _ = self._heard.get(name, (start, 0.0))
            if known == start:
                self._heard[name] = (start, time.monotonic())

    def _refusal(self, name: str, start: str) -> str | None:
        """Return why a site is not let in, or None if it is."""
        try:
            open_kit(Path(self.folder), as_site=False).members().valid_certificate(name)
        except FederationError as error:
            return str(error)
        with self._lock:
            known, heard = self._heard.get(name, (start, 0.0))
        while known != start and time.monotonic() < heard + _SILENCE:
            with self._lock:
                known, last = self._heard[name]
            if known != start and last > heard:
                return f"{name} is running already: a second site of that name was refused"
            time.sleep(_LOOK)
        with self._lock:
            self._heard[name] = (start, time.monotonic())
        return None


class Announcer(FLComponent):  # type: ignore[misc]
    """Prints in a site's terminal when it connects, and when a job begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self._start = secrets.token_hex(16)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Print an event of interest; tell the coordinator which process this is."""
        if event_type in (EventType.BEFORE_CLIENT_REGISTER, EventType.BEFORE_CLIENT_HEARTBEAT):
            fl_ctx.set_prop(_START, self._start, private=False, sticky=True)
        if event_type in _ANNOUNCEMENTS:
            print(_ANNOUNCEMENTS[event_type], flush=True)
