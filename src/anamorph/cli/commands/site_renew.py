"""``anamorph site renew``: a request for a new certificate, before the old one expires."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.commands.site_join import SiteKit
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site renew kit
anamorph site renew kit --new-key"""


def renew(
    kit: SiteKit,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key",
            metavar="",
            help="Make a new key, because the old one may be known to others.",
        ),
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a request for a new certificate, and send it as when the site joined.

    The key stays the same, so the other sites have nothing to do. With a new
    key, the consortium must revoke the old one, and all sites accept the new.
    """
    require_nvflare()
    from anamorph.federation.nvflare.membership import renew as request_renewal

    with talking("site renew", quiet, as_json) as messages:
        request = request_renewal(kit, new_key)
        messages.say(f"Send {request.path} to the consortium")
        if new_key:
            messages.say(f"Read this fingerprint to the other sites: {request.fingerprint}")
        messages.say(f"When the members file comes back: anamorph site update {kit} members.json")
        messages.result(request=str(request.path), fingerprint=request.fingerprint)
