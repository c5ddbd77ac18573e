"""``anamorph site join``: make the key of a site, and a request to become a member."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site join kit --name london"""

SiteKit = Annotated[
    Path, typer.Argument(metavar="KIT", show_default=False, help="Folder of the site's kit.")
]


def join(
    kit: Annotated[
        Path,
        typer.Argument(
            metavar="KIT", show_default=False, help="A new folder for the kit of this site."
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of this site in the consortium.")],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Begin the kit of a site: its private key, which never leaves, and a request.

    Send the request (KIT/NAME.csr) to whoever runs the consortium: it holds no
    secret. Read the fingerprint to the other sites, over the telephone.
    """
    require_nvflare()
    from anamorph.federation.nvflare.membership import join as begin

    with talking("site join", quiet, as_json) as messages:
        request = begin(kit, name)
        messages.say(f"The private key of {name} is in {kit}: it stays there")
        messages.say(f"Send {request.path} to the consortium")
        messages.say(f"Read this fingerprint to the other sites: {request.fingerprint}")
        messages.say(f"When the members file comes back: anamorph site update {kit} members.json")
        messages.result(request=str(request.path), fingerprint=request.fingerprint)
