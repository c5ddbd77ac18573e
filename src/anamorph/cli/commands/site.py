"""``anamorph site``: the commands of one site of a federation."""

from __future__ import annotations

import typer

from anamorph.cli.commands import encode, site_start
from anamorph.cli.commands import site_audit as audit

site = typer.Typer(
    name="site",
    no_args_is_help=True,
    help="Take part in fits across sites, and see what left this one.",
)
site.command(epilog=site_start.EXAMPLES)(site_start.start)
site.command(epilog=encode.SITE_EXAMPLES)(encode.encode)
site.command(epilog=audit.EXAMPLES)(audit.audit)
