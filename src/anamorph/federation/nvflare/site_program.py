"""A site's program in a job. It is installed at the site; jobs name it and ship no code.

NVFLARE creates it without arguments, so it reads everything from the kit of the site.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.site_data import open_agent
from anamorph.federation.nvflare.transport import Garbage
from anamorph.federation.protocol.errors import PolicyError
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.federation.site.agent import SiteAgent

_SERVER = "server"  # NVFLARE's name for the coordinator's end of a job


class SiteProgram:
    """Passes the coordinator's messages on to the agent of the site."""

    _agent: SiteAgent
    _garbage: Garbage

    @collab.init
    def open(self) -> None:
        """Open images and policy before the first message."""
        self._agent = open_agent(open_kit(Path(collab.workspace.get_root_dir()), as_site=True))
        self._garbage = Garbage()

    @collab.publish
    def answer(self, message: bytes) -> bytes:
        """Answer a message of the coordinator, as bytes."""
        if collab.caller != _SERVER:  # sites of a job can reach each other
            text = f"this site answers the coordinator only, not {collab.caller}"
            return pack({"error": PolicyError.__name__, "text": text})
        self._garbage.collect()
        answer = pack(self._agent.handle(unpack(message)))
        self._garbage.add(len(message) + len(answer))
        return answer

    @collab.publish
    def is_here(self) -> bool:
        """Return True, also while another thread computes an answer."""
        return True
