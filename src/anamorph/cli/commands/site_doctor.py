"""``anamorph site doctor``: whether everything is there for a site to take part."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.commands.site_join import SiteKit
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import BAD_INPUT, require_nvflare
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.settings import chosen_likelihood

if TYPE_CHECKING:
    from anamorph.federation.nvflare.site_data import SiteData

EXAMPLES = """[bold]Examples[/bold]
anamorph site doctor kit
anamorph site doctor kit --data scans/ --policy policy.toml"""


def doctor(
    kit: SiteKit,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="IMAGES",
            help="As in 'anamorph site start'; by default what was last lent.",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="By default the policy of the last start."),
    ] = None,
    labels: options.Labels = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Check key, certificates, clock, connection, disk, policy and images of a site.

    Every line is ok, a warning or a problem, and says what to do. Exits with 1
    if there is a problem.
    """
    require_nvflare()
    from anamorph.federation.nvflare.doctor import examine

    with talking("site doctor", quiet, as_json) as messages:
        findings = examine(kit, _site_data(kit, data, policy, labels))
        for finding in findings:
            messages.say(f"{finding.level:8} {finding.check}: {finding.text}")
        n_problems = sum(finding.level == "problem" for finding in findings)
        n_warnings = sum(finding.level == "warning" for finding in findings)
        messages.say(f"{counted(n_problems, 'problem')}, {counted(n_warnings, 'warning')}")
        messages.result(n_problems=n_problems, findings=[asdict(entry) for entry in findings])
    if n_problems:
        raise typer.Exit(BAD_INPUT)


def _site_data(
    folder: Path, data: list[str] | None, policy: Path | None, labels: bool
) -> SiteData | None:
    """Return the images and the policy to check: those given, or those that were last lent."""
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.nvflare.site_data import SiteData, read_site_data
    from anamorph.federation.protocol.errors import FederationError
    from anamorph.likelihoods import DEFAULT

    try:
        lent = read_site_data(open_kit(folder, as_site=True))
    except FederationError:  # one of the findings
        lent = None
    if data is not None:
        found = ImageArguments(data, False, None, False, None).find()
        files = [[str(path.resolve()) for path in group] for group in found.files]
        kind = chosen_likelihood(None, labels, False) or DEFAULT
        lent = SiteData(files, kind, policy=None if lent is None else lent.policy)
    if lent is not None and policy is not None:
        lent = replace(lent, policy=str(policy.resolve()))
    return lent
