"""``anamorph federation``: fits and analyses across sites that keep their images."""

from __future__ import annotations

import typer

from anamorph.cli.commands import (
    federation_fit,
    federation_provision,
    federation_renew,
    federation_revoke,
    federation_sign,
    federation_statistics,
    release_check,
    simulate,
    simulate_statistics,
)

federation = typer.Typer(
    name="federation",
    no_args_is_help=True,
    help="Fit one model to the images of several sites. The images never leave their site.",
)
federation.command(epilog=federation_provision.EXAMPLES)(federation_provision.provision)
federation.command(epilog=federation_sign.EXAMPLES)(federation_sign.sign)
federation.command(epilog=federation_revoke.EXAMPLES)(federation_revoke.revoke)
federation.command(epilog=federation_renew.EXAMPLES)(federation_renew.renew)
federation.command(epilog=federation_fit.EXAMPLES)(federation_fit.fit)
federation.command(epilog=federation_statistics.EXAMPLES)(federation_statistics.statistics)
federation.command(epilog=simulate.EXAMPLES)(simulate.simulate)
federation.command(epilog=simulate_statistics.EXAMPLES)(simulate_statistics.simulate_statistics)
federation.command("release-check", epilog=release_check.EXAMPLES)(release_check.release_check)
