"""``anamorph federation statistics``: means and covariances of latents, from sums of sites."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli import options
from anamorph.cli.errors import CommandError
from anamorph.cli.images import ImageArguments, ImageList
from anamorph.cli.messages import counted, talking
from anamorph.cli.models import load_model
from anamorph.cli.places import reserve
from anamorph.cli.simulate import InTheOpen, NumberOfSites, PolicyFile, _policy

if TYPE_CHECKING:
    from anamorph.federation.analysis import GroupStatistics

EXAMPLES = """[bold]Examples[/bold]
anamorph federation statistics shared.safetensors scans/ --sites 3 -o latents.tsv
anamorph federation statistics shared.safetensors scans/ --sites 3 -o latents.tsv --participants participants.tsv --group-by diagnosis"""  # noqa: E501


def statistics(
    model_file: options.ModelFile,
    images: options.Images,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="TSV", help="Table of statistics to write.")
    ],
    sites: NumberOfSites = 3,
    participants: options.ParticipantsTable = None,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that names groups."),
    ] = None,
    weight_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that holds weights."),
    ] = None,
    policy: PolicyFile = None,
    in_the_open: InTheOpen = False,
    threads: options.Threads = None,
    device: options.Device = None,
    tissues: options.Tissues = False,
    resample: options.Resample = False,
    cache: options.CacheFolder = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Find the mean and the covariance of latents by group, from sums of sites.

    The sites are on this machine, as in 'anamorph federation simulate'. The
    table has rows for every group: the mean, then a row of the covariance for
    each latent.
    """
    from anamorph.federation.analysis import federated_statistics
    from anamorph.federation.simulate import simulated_sites, split_images

    with talking("statistics", quiet, as_json) as messages:
        model = load_model(model_file, threads, device)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find()
        reserve([output], [model_file, *given.inputs(found), policy], force=force)
        columns = _columns(found, participants, [group_by, weight_by])
        groups = ["all"] if group_by is None else sorted(set(columns[group_by]))
        files: Any = given.open_for(model, found)
        with (
            tempfile.TemporaryDirectory() as folder,
            messages.waiting(f"Encoding {counted(len(found), 'image')}"),
        ):
            transport = simulated_sites(
                files,
                split_images(len(files), sites),
                Path(folder),
                _policy(policy, in_the_open),
                columns=columns,
                n_threads=threads,
            )
            known = federated_statistics(
                model,
                transport,
                transport.names,
                groups,
                group_by=group_by,
                weight_by=weight_by,
                is_secure=not in_the_open,
            )
        _write(output, known)
        messages.wrote(output)
        messages.result(
            groups={
                group.name: {"n_images": group.n_images, "mean": group.mean.tolist()}
                for group in known
            }
        )


def _columns(
    found: ImageList, participants: Path | None, names: list[str | None]
) -> dict[str, list[str]]:
    """Return the columns that are asked for, a value for each image."""
    from anamorph.io.participants import read_participants

    wanted = [name for name in names if name is not None]
    if not wanted:
        return {}
    if participants is None:
        raise CommandError(
            "--group-by and --weight-by name columns of a table: give --participants"
        )
    table = read_participants(participants).matched([group[0] for group in found.files])
    return {name: [str(text) for text in table.labels(name)] for name in wanted}


def _write(path: Path, groups: list[GroupStatistics]) -> None:
    """Write means and covariances as a table."""
    from anamorph.io.replace import replacing

    n_latents = len(groups[0].mean)
    latents = [f"z{k}" for k in range(1, n_latents + 1)]
    lines = ["\t".join(["group", "n_images", "statistic", *latents])]
    for group in groups:
        rows = {"mean": group.mean}
        rows |= {f"covariance_{name}": group.covariance[k] for k, name in enumerate(latents)}
        for name, values in rows.items():
            numbers = [f"{value:.9g}" for value in values]
            lines.append("\t".join([group.name, str(group.n_images), name, *numbers]))
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
