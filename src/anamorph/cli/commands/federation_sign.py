"""``anamorph federation sign``: make sites members of a consortium, or renew their certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph federation sign consortium london.csr paris.csr rome.csr
anamorph federation sign consortium madrid.csr --add"""

Consortium = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        show_default=False,
        help="Folder that 'anamorph federation provision' made.",
    ),
]
Days = Annotated[
    int, typer.Option(min=1, metavar="N", help="Days for which certificates are valid.")
]


def sign(
    consortium: Consortium,
    requests: Annotated[
        list[Path],
        typer.Argument(metavar="REQUEST...", show_default=False, help="Requests of sites."),
    ],
    add: Annotated[
        bool,
        typer.Option("--add", metavar="", help="Also sites that the consortium did not expect."),
    ] = False,
    days: Days = 365,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Sign the requests of sites, and write a new members file.

    The file goes to all sites, old and new, and holds no secret. It makes
    nobody trusted: each site accepts the others' keys by their fingerprints.
    """
    require_nvflare()
    from anamorph.federation.nvflare.members import MEMBERS
    from anamorph.federation.nvflare.provision import missing_sites, sign_requests

    with talking("federation sign", quiet, as_json) as messages:
        signed = sign_requests(consortium, requests, may_add=add, days=days)
        for entry in signed:
            what = "new member" if entry.is_new else "renewed"
            messages.say(f"{entry.name}: {what}, fingerprint {entry.fingerprint}")
        missing = missing_sites(consortium)
        if missing:
            messages.say(f"Still to come: {', '.join(missing)}")
        messages.say(
            f"Send {consortium / MEMBERS} to all sites, for 'anamorph site update KIT {MEMBERS}'"
        )
        messages.result(
            signed={entry.name: entry.fingerprint for entry in signed},
            missing=missing,
            members=str(consortium / MEMBERS),
        )
