"""``anamorph federation provision``: the authority of a consortium, and the coordinator's kit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph federation provision consortium.yml -o consortium"""


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
        typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the consortium."),
    ],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Found a consortium: its authority, and the kit of the coordinator.

    The YAML file has three entries: name, server: {host: HOST, port: 8002},
    and sites, a list of names.

    No key of a site is made here. Each site makes its own with 'anamorph site
    join' and sends a request, which 'anamorph federation sign' signs.
    """
    require_nvflare()
    from anamorph.federation.nvflare.consortium import read_consortium
    from anamorph.federation.nvflare.members import MEMBERS
    from anamorph.federation.nvflare.provision import AUTHORITY
    from anamorph.federation.nvflare.provision import provision as found
    from anamorph.federation.protocol.certificates import fingerprint

    with talking("federation provision", quiet, as_json) as messages:
        facts = read_consortium(consortium)
        kit = found(facts, output)
        authority = fingerprint(kit.members().authority_certificate.public_key())
        messages.say(f"The coordinator's kit: {output / kit.name}")
        messages.say(f"The authority: {output / AUTHORITY}; keep it secret, best off the network")
        messages.say(f"Fingerprint of the authority: {authority}")
        messages.say(
            f"Next: {', '.join(facts.sites)} each run 'anamorph site join' and send their request "
            f"for 'anamorph federation sign {output} REQUEST...'"
        )
        messages.result(
            consortium=facts.name,
            kit=str(output / kit.name),
            authority=str(output / AUTHORITY),
            fingerprint=authority,
            members=str(output / MEMBERS),
        )
