"""``anamorph federation renew``: new keys and certificates for the coordinator."""

from __future__ import annotations

from anamorph.cli.commands.federation_sign import Consortium, Days
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph federation renew consortium"""


def renew(
    consortium: Consortium,
    days: Days = 365,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Give the coordinator new keys and certificates, before the old ones expire.

    Sites need nothing: they know the coordinator by the consortium's authority.
    """
    require_nvflare()
    from anamorph.federation.nvflare.provision import renew_coordinator

    with talking("federation renew", quiet, as_json) as messages:
        kit = renew_coordinator(consortium, days)
        messages.say(f"The coordinator has new certificates, for {days} days")
        messages.result(kit=str(kit.folder), days=days)
