"""``anamorph site update``: take over the consortium's newest members file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.commands.site_join import SiteKit
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site update kit members.json"""


def update(
    kit: SiteKit,
    members: Annotated[
        Path,
        typer.Argument(
            metavar="MEMBERS", show_default=False, help="The consortium's members.json."
        ),
    ],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Take over the consortium's members file.

    The first one finishes the kit; later ones bring new members, renewed
    certificates and revocations. A site that runs need not be restarted,
    unless its own certificate is new.
    """
    require_nvflare()
    from anamorph.federation.nvflare.membership import update as take_over

    with talking("site update", quiet, as_json) as messages:
        changes = take_over(kit, members)
        for line in changes:
            messages.say(line)
        messages.say(f"All members: anamorph site roster {kit}")
        messages.result(changes=changes)
