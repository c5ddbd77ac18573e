"""``anamorph federation revoke``: end the membership of a site, or of a key that was lost."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.commands.federation_sign import Consortium
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph federation revoke consortium paris"""


def revoke(
    consortium: Consortium,
    site: Annotated[
        str, typer.Argument(metavar="SITE", show_default=False, help="Name of the site.")
    ],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Revoke the key of a site, and write a new members file without it.

    The coordinator refuses it at once, and a fit that runs goes on without it.
    Send the members file to all sites, so that they refuse it too.
    """
    require_nvflare()
    from anamorph.federation.nvflare.members import MEMBERS
    from anamorph.federation.nvflare.provision import revoke as end_membership

    with talking("federation revoke", quiet, as_json) as messages:
        seen = end_membership(consortium, site)
        messages.say(f"{site} is no longer a member: its key {seen} is revoked")
        messages.say(
            f"Send {consortium / MEMBERS} to all sites, for 'anamorph site update KIT {MEMBERS}'"
        )
        messages.result(site=site, fingerprint=seen, members=str(consortium / MEMBERS))
