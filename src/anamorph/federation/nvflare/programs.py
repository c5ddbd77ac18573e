"""The two programs of a job, which are installed at all parties: jobs name them, and ship none.

Both live as long as the job. NVFLARE makes them, so they take no arguments, and find all they need
in the kit of their party.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from anamorph.federation.agent import SiteAgent
from anamorph.federation.errors import PolicyError
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.site import open_agent
from anamorph.federation.nvflare.tasks import run_task
from anamorph.federation.nvflare.transport import CollabTransport
from anamorph.federation.wire import pack, unpack

_SERVER = "server"  # what NVFLARE calls the coordinator's end of a job


class SiteProgram:
    """Passes the coordinator's messages on to the agent of the site."""

    _agent: SiteAgent

    @collab.init
    def open(self) -> None:
        """Open images and policy, before the first message."""
        self._agent = open_agent(_kit(as_site=True))

    @collab.publish
    def answer(self, message: bytes) -> bytes:
        """Answer a message."""
        if collab.caller != _SERVER:  # sites of a job can reach each other
            refusal = PolicyError(f"only the coordinator is answered, not {collab.caller}")
            return pack({"error": type(refusal).__name__, "text": str(refusal)})
        return pack(self._agent.handle(unpack(message)))

    @collab.publish
    def is_here(self) -> bool:
        """Say so, also while an answer is being computed."""
        return True


class CoordinatorProgram:
    """Runs what the coordinator's kit was told to do."""

    @collab.main
    def run(self) -> None:
        """Run it."""
        run_task(_kit(as_site=False), CollabTransport())


def _kit(as_site: bool) -> Kit:
    return open_kit(Path(collab.workspace.get_root_dir()), as_site)
