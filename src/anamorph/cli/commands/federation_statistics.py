"""``anamorph federation statistics``: means and covariances of latents, from sums of all sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.commands.federation_fit import CoordinatorKit, Patience, Timeout
from anamorph.cli.commands.simulate import InTheOpen
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError, require_nvflare
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.models import load_model
from anamorph.cli.terminal.places import reserve

if TYPE_CHECKING:
    from anamorph.federation.nvflare.kit import Kit
    from anamorph.federation.nvflare.request import StatisticsRequest

EXAMPLES = """[bold]Examples[/bold]
anamorph federation statistics kits/coordinator shared.safetensors -o latents.tsv
anamorph federation statistics kits/coordinator shared.safetensors -o latents.tsv --group-by diagnosis --group case --group control"""  # noqa: E501


def statistics(
    kit: CoordinatorKit,
    model_file: options.ModelFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="TSV", help="Table of statistics to write.")
    ],
    group_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that names groups; all sites must lend it."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A group, as it is in the column; more than once for more."
        ),
    ] = None,
    weight_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that holds weights; all sites must lend it."),
    ] = None,
    in_the_open: InTheOpen = False,
    patience: Patience = 600.0,
    timeout: Timeout = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Find the mean and the covariance of latents by group, from sums of all sites.

    Sites find the latents of their images under the model and answer with sums
    of them, as their policies allow. The table has rows for every group: the
    mean, then a row of the covariance for each latent.
    """
    require_nvflare()
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.nvflare.request import StatisticsRequest

    with talking("federation statistics", quiet, as_json) as messages:
        groups = _groups(group_by, group or [])
        opened = open_kit(kit, as_site=False)
        load_model(model_file)  # what is wrong with it is said before sites are asked
        reserve([output], [model_file], force=force)
        request = StatisticsRequest(
            str(model_file.resolve()),
            str(output.resolve()),
            groups,
            group_by,
            weight_by,
            not in_the_open,
            timeout,
        )
        result = _drive(opened, request, patience, messages)
        n_images = sum(group["n_images"] for group in result["groups"].values())
        messages.say(f"{counted(n_images, 'image')} of {', '.join(result['roster'])}")
        messages.wrote(output)
        messages.result(**result)


def _groups(group_by: str | None, groups: list[str]) -> list[str]:
    """Return the groups to ask for, which only their sites could list."""
    if (group_by is None) != (not groups):
        raise CommandError("--group-by names a column and --group what is in it: give both")
    if len(set(groups)) < len(groups):
        raise CommandError(f"--group must name every group once, got {', '.join(groups)}")
    return groups or ["all"]


def _drive(
    kit: Kit, request: StatisticsRequest, patience: float, messages: Messages
) -> dict[str, Any]:
    from anamorph.federation.nvflare.driver import Driver
    from anamorph.federation.nvflare.following import Watch

    watch = Watch(messages.say, lambda facts: None)
    with messages.waiting("Finding statistics"), Driver(kit, watch, patience) as driver:
        return driver.find_statistics(request)
