"""``anamorph site roster``: the members of the consortium, and whom of them this site accepts."""

from __future__ import annotations

from dataclasses import asdict

from anamorph.cli.commands.site_join import SiteKit
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import counted, talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site roster kit"""


def roster(
    kit: SiteKit,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Show all members with the fingerprints of their keys, and who is accepted here."""
    require_nvflare()
    from rich.table import Table

    from anamorph.federation.nvflare.accepted import standings
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.protocol.certificates import fingerprint

    with talking("site roster", quiet, as_json) as messages:
        opened = open_kit(kit, as_site=True)
        members, found = opened.members(), standings(opened)
        table = Table(box=None, header_style="bold")
        for name in ("site", "fingerprint", "valid until", "here"):
            table.add_column(name, overflow="fold")
        for entry in found:
            until = f"{members.certificate(entry.name).not_valid_after_utc:%Y-%m-%d}"
            here = "this site" if entry.name == opened.name else "accepted"
            table.add_row(entry.name, entry.fingerprint or "?", until, entry.problem or here)
        messages.answer(table)
        waiting = [entry.name for entry in found if entry.problem is not None]
        authority = fingerprint(members.authority_certificate.public_key())
        messages.say(
            f"{opened.consortium}, issue {members.issue} of {members.issued}, by the authority "
            f"{authority}: {counted(len(found), 'site')}, {len(waiting)} not trusted here"
        )
        messages.result(
            site=opened.name,
            issue=members.issue,
            authority=authority,
            sites=[asdict(entry) for entry in found],
        )
