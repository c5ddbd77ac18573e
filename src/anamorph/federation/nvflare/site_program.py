"""A site's program in a job. It is installed at the site; jobs name it and ship no code.

NVFLARE creates it without arguments, so it reads everything from the kit of the site.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from anamorph.federation.nvflare.acquaintance import Acquaintance
from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.site_data import open_agent, open_identity
from anamorph.federation.nvflare.transport import Garbage
from anamorph.federation.protocol.errors import MessageError, PolicyError
from anamorph.federation.protocol.wire import Message, pack, unpack
from anamorph.federation.site.agent import SiteAgent

_SERVER = "server"  # NVFLARE's name for the coordinator's end of a job


class SiteProgram:
    """Passes the coordinator's messages on to the agent of the site."""

    _acquaintance: Acquaintance
    _agent: SiteAgent
    _garbage: Garbage

    @collab.init
    def open(self) -> None:
        """Open images and policy before the first message."""
        kit = open_kit(Path(collab.workspace.get_root_dir()), as_site=True)
        identity = open_identity(kit)
        self._acquaintance = Acquaintance(kit, identity)
        self._agent = open_agent(kit, identity)
        self._garbage = Garbage()

    @collab.publish
    def introduce(self) -> bytes:
        """Return this site's introduction to the others, or a refusal to take part."""
        return pack(_refusal_of_caller() or self._acquaintance.introduce())

    @collab.publish
    def meet(self, message: bytes) -> bytes:
        """Check the introductions of all sites of the job; return nothing, or a refusal."""
        return pack(_refusal_of_caller() or self._acquaintance.meet(unpack(message)))

    @collab.publish
    def answer(self, message: bytes) -> bytes:
        """Answer a message of the coordinator, as bytes."""
        refusal = _refusal_of_caller()
        if refusal is not None:
            return pack(refusal)
        self._garbage.collect()
        asked = _readable(message)
        answer = pack(self._acquaintance.refusal_of(asked) or self._agent.handle(asked))
        self._garbage.add(len(message) + len(answer))
        return answer

    @collab.publish
    def is_here(self) -> bool:
        """Return True, also while another thread computes an answer."""
        return True


def _readable(message: bytes) -> Message:
    """Return the message in some bytes; if there is none, one that the agent refuses and logs."""
    try:
        return unpack(message)
    except MessageError:
        return {}


def _refusal_of_caller() -> dict[str, str] | None:
    """Return a refusal of other callers than the coordinator: sites can reach each other."""
    if collab.caller == _SERVER:
        return None
    text = f"this site answers the coordinator only, not {collab.caller}"
    return {"error": PolicyError.__name__, "text": text}
