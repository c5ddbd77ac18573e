"""``anamorph federation provision``: certificates and a kit for every party of a consortium."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph federation provision consortium.yml -o kits"""


def provision(
    consortium: Annotated[
        Path,
        typer.Argument(
            metavar="YAML",
            show_default=False,
            help="The parties, and the address of the coordinator.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the kits."),
    ],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Make certificates and kits for a coordinator and its sites.

    The YAML file has three entries: name, server: {host: HOST, port: 8002},
    and sites, a list of names.

    Give each site its own kit over a channel that you trust: the kit holds the
    site's key. Whoever holds FOLDER/authority can add sites.
    """
    require_nvflare()
    from anamorph.federation.nvflare.consortium import read_consortium
    from anamorph.federation.nvflare.provision import AUTHORITY
    from anamorph.federation.nvflare.provision import provision as make_kits

    with talking("federation provision", quiet, as_json) as messages:
        facts = read_consortium(consortium)
        kits = make_kits(facts, output)
        for kit in kits:
            messages.say(f"{kit.folder.name}: {output / kit.name}")
        messages.say(f"Keep {output / AUTHORITY} secret: whoever holds it can add sites")
        messages.result(
            consortium=facts.name,
            kits={kit.name: str(output / kit.name) for kit in kits},
            authority=str(output / AUTHORITY),
        )
