"""``anamorph site``: the commands of one site of a federation."""

from __future__ import annotations

import typer

from anamorph.cli.commands import (
    encode,
    site_accept,
    site_doctor,
    site_join,
    site_renew,
    site_roster,
    site_start,
    site_update,
)
from anamorph.cli.commands import site_audit as audit

site = typer.Typer(
    name="site",
    no_args_is_help=True,
    help="Take part in fits across sites, and see what left this one.",
)
_MEMBERSHIP, _WORK = "Become and stay a member", "Take part"
site.command(epilog=site_join.EXAMPLES, rich_help_panel=_MEMBERSHIP)(site_join.join)
site.command(epilog=site_update.EXAMPLES, rich_help_panel=_MEMBERSHIP)(site_update.update)
site.command(epilog=site_accept.EXAMPLES, rich_help_panel=_MEMBERSHIP)(site_accept.accept)
site.command(epilog=site_roster.EXAMPLES, rich_help_panel=_MEMBERSHIP)(site_roster.roster)
site.command(epilog=site_renew.EXAMPLES, rich_help_panel=_MEMBERSHIP)(site_renew.renew)
site.command(epilog=site_doctor.EXAMPLES, rich_help_panel=_WORK)(site_doctor.doctor)
site.command(epilog=site_start.EXAMPLES, rich_help_panel=_WORK)(site_start.start)
site.command(epilog=encode.SITE_EXAMPLES, rich_help_panel=_WORK)(encode.encode)
site.command(epilog=audit.EXAMPLES, rich_help_panel=_WORK)(audit.audit)
