"""``anamorph site accept``: trust the key of another site, by its fingerprint."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.commands.site_join import SiteKit
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError, require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site accept kit paris 3f2a-91c0-77de-0b12-a4c9-5e10-c3b8-22f7
anamorph site accept kit paris --withdraw"""


def accept(
    kit: SiteKit,
    name: Annotated[
        str, typer.Argument(metavar="SITE", show_default=False, help="Name of the other site.")
    ],
    fingerprint: Annotated[
        str | None,
        typer.Argument(
            metavar="FINGERPRINT",
            show_default=False,
            help="Of its key, as somebody there reads it out.",
        ),
    ] = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", metavar="", help="Trust the site no longer.")
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Accept the key of another site, after comparing its fingerprint.

    Call somebody at the other site whom you know, let them read it out, and
    type it here. This site answers nothing together with a site that it has
    not accepted, whatever the consortium's authority says.

    Accepting a site again forgets which runs of it were seen, e.g. after it
    has restored a backup.
    """
    require_nvflare()
    from anamorph.federation.nvflare import accepted
    from anamorph.federation.nvflare.kit import name_of_kit
    from anamorph.federation.nvflare.runs import MetSites
    from anamorph.federation.site.audit import AuditLog

    with talking("site accept", quiet, as_json) as messages:
        own = name_of_kit(kit)
        if name == own:
            raise CommandError(f"{own} is this site, which trusts itself: name another one")
        if (fingerprint is None) != withdraw:
            raise CommandError("give a fingerprint to accept a site, or --withdraw")
        audit = AuditLog(kit / "work" / "audit.jsonl")
        if fingerprint is None:
            accepted.withdraw(kit, name)
            audit.write(event="withdrawn", site=name, text=f"{name} is accepted no longer")
            messages.say(f"{name} is accepted no longer")
            messages.result(site=name, fingerprint=None)
            return
        seen = accepted.accept(kit, name, fingerprint)
        MetSites(kit / "work" / "met.json").forget(name)
        audit.write(event="accepted", site=name, fingerprint=seen, text=f"{name} with key {seen}")
        messages.say(f"{name} is accepted, with the key {seen}")
        messages.result(site=name, fingerprint=seen)
