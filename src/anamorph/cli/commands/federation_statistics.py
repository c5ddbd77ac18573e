"""``anamorph federation statistics``: means and covariances of latents over all sites."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anamorph.cli.commands.federation_fit import CoordinatorKit, Patience, Timeout
from anamorph.cli.commands.simulate import InTheOpen, StatisticsTable
from anamorph.cli.commands.simulate_statistics import (
    Clip,
    Delta,
    Epsilon,
    tell_privacy,
    terms_of,
)
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError, require_nvflare
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.models import load_model
from anamorph.cli.terminal.places import reserve

EXAMPLES = """[bold]Examples[/bold]
anamorph federation statistics consortium/coordinator shared.safetensors -o latents.tsv
anamorph federation statistics consortium/coordinator shared.safetensors -o latents.tsv --group-by diagnosis --group case --group control
anamorph federation statistics consortium/coordinator shared.safetensors -o latents.tsv --epsilon 1"""  # noqa: E501


def statistics(
    kit: CoordinatorKit,
    model_file: options.ModelFile,
    output: StatisticsTable,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that holds groups; all sites must lend it."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A group, as it occurs in the column. Repeat the option for more."
        ),
    ] = None,
    weight_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that holds weights; all sites must lend it."),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 1e-5,
    clip: Clip = None,
    in_the_open: InTheOpen = False,
    patience: Patience = 600.0,
    timeout: Timeout = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute the mean and covariance of latents by group, over all sites.

    Sites encode their images with the model and answer with sums of latents,
    as their policies allow. For every group the table has a row with the mean,
    then a row of the covariance for each latent.

    What differs between sites, such as scanners, is part of what differs between
    groups, unless each site has the same share of every group.
    """
    require_nvflare()
    from anamorph.federation.nvflare.driver import Driver
    from anamorph.federation.nvflare.job import Watch
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.nvflare.request import StatisticsRequest

    with talking("federation statistics", quiet, as_json) as messages:
        groups = _checked_groups(group_by, group or [])
        opened = open_kit(kit, as_site=False)
        model = load_model(model_file)  # report a faulty file before any site is asked
        private = terms_of(model, epsilon, delta, clip)
        reserve([output], [model_file], force=force)
        request = StatisticsRequest(
            str(model_file.resolve()),
            str(output.resolve()),
            groups,
            group_by,
            weight_by,
            not in_the_open,
            timeout,
            None if private is None else asdict(private),
        )
        watch = Watch(messages.say, lambda facts: None)
        with messages.waiting("Computing statistics"):
            result = Driver(opened, watch, patience).run(request)
        n_images = sum(group["n_images"] for group in result["groups"].values())
        messages.say(f"{counted(n_images, 'image')} of {', '.join(result['roster'])}")
        tell_privacy(private, messages)
        messages.wrote(output)
        messages.result(**result)


def _checked_groups(group_by: str | None, groups: list[str]) -> list[str]:
    """Return the groups to ask for. The user names them, because only sites see the column."""
    if (group_by is None) != (not groups):
        raise CommandError("--group-by names a column and --group its values: give both")
    if len(set(groups)) < len(groups):
        raise CommandError(f"--group must name every group once, got {', '.join(groups)}")
    return groups or ["all"]
