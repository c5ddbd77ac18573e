"""``anamorph federation simulate-statistics``: statistics across sites on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.commands.simulate import (
    InTheOpen,
    NumberOfSites,
    PolicyFile,
    StatisticsTable,
    policy_of,
)
from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import ImageArguments, columns_of
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.models import load_model
from anamorph.cli.terminal.places import reserve

EXAMPLES = """[bold]Examples[/bold]
anamorph federation simulate-statistics shared.safetensors scans/ --sites 3 -o latents.tsv
anamorph federation simulate-statistics shared.safetensors scans/ --sites 3 -o latents.tsv --participants participants.tsv --group-by diagnosis"""  # noqa: E501


def simulate_statistics(
    model_file: options.ModelFile,
    images: options.Images,
    output: StatisticsTable,
    sites: NumberOfSites = 3,
    participants: options.ParticipantsTable = None,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that holds groups."),
    ] = None,
    weight_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that holds weights."),
    ] = None,
    policy: PolicyFile = None,
    in_the_open: InTheOpen = False,
    threads: options.Threads = None,
    tissues: options.Tissues = False,
    resample: options.Resample = False,
    cache: options.CacheFolder = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute statistics of latents across sites that all run on this machine.

    The sites are as in 'anamorph federation simulate', and the table as in
    'anamorph federation statistics', for all groups in the column.
    """
    from anamorph.federation.coordinator import statistics as across_sites
    from anamorph.federation.simulate import simulated_sites, split_images

    with talking("simulate-statistics", quiet, as_json) as messages:
        model = load_model(model_file, threads)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find()
        reserve([output], [model_file, *given.inputs(found), policy], force=force)
        asked = [name for name in (group_by, weight_by) if name is not None]
        columns = columns_of(found, participants, asked, "--group-by and --weight-by name columns")
        groups = ["all"] if group_by is None else sorted(set(columns[group_by]))
        files = given.open_for(model, found)
        with (
            tempfile.TemporaryDirectory() as folder,
            messages.waiting(f"Encoding {counted(len(found), 'image')}"),
        ):
            parts, rules = split_images(len(files), sites), policy_of(policy, in_the_open)
            transport = simulated_sites(
                files, parts, Path(folder), rules, columns=columns, n_threads=threads
            )
            statistics = across_sites.federated_statistics(
                model,
                transport,
                transport.names,
                groups,
                group_by=group_by,
                weight_by=weight_by,
                is_secure=not in_the_open,
            )
        across_sites.write_statistics(output, statistics)
        messages.wrote(output)
        messages.result(groups=across_sites.summarised(statistics))
