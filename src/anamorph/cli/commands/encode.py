"""``anamorph encode``: the latents of images under a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.derivatives import tables_beside, write_tables_beside
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, check_residual

EXAMPLES = """[bold]Examples[/bold]
anamorph encode model.safetensors new/ -o latents.tsv
anamorph encode model.safetensors 'new/*.nii.gz' -o latents.tsv --evidence --residual"""

SITE_EXAMPLES = """[bold]Examples[/bold]
anamorph site encode shared.safetensors scans/ -o latents.tsv"""


@options.command()
def encode(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="TSV", help="Table of latents to write.")
    ],
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            metavar="",
            help="Add a column log_evidence: how well the model explains each image.",
        ),
    ] = False,
    residual: Annotated[
        bool,
        typer.Option(
            "--residual",
            metavar="",
            help="Find residual warps too, and write them beside the table, to its name with "
            ".residuals.safetensors; for models fitted with --residual.",
        ),
    ] = False,
    model_arguments: ModelArguments,
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Find the latents of images: a few numbers for each, in a table.

    The table has a row for every image: participant_id, then z1, z2, ... and
    its pose, where the model was fitted with --align: shifts in mm, turns in
    radian, logarithms of sizes.
    """
    from anamorph.storage.residuals import residuals_path, write_residuals
    from anamorph.storage.tables import check_names, pose_columns, write_latents

    model = model_arguments.load()
    if residual:
        check_residual(model)
    found = given.find()
    check_names(found.names)
    beside = [residuals_path(output)] if residual else []
    joined = [] if found.bids is None else tables_beside(output, found.bids)
    model_arguments.reserve([output, *beside, *joined], given.inputs(found))
    files = given.open_for(model, found)
    with messages.counting(f"Encoding {counted(len(found), 'image')}"):
        encoded = model.encode(files, residual=residual)
    more = pose_columns(model.pose_names_, encoded.poses)
    if evidence:
        more["log_evidence"] = encoded.log_evidence.tolist()
    if encoded.residuals is not None:
        fingerprint = model.generator_.parameters.fingerprint
        write_residuals(residuals_path(output), found.names, encoded.residuals, fingerprint)
    write_latents(output, found.names, encoded.latents, more)
    tables: list[Path] = []
    if given.bids is not None and found.bids is not None:
        made_from = (given.bids, found.bids, found.names)
        tables = write_tables_beside(output, *made_from, encoded.latents, "anamorph encode")
    messages.wrote(output, *beside, *tables)
    messages.result(
        n_images=len(found),
        n_latents=encoded.latents.shape[1],
        **({"mean_log_evidence": float(encoded.log_evidence.mean())} if evidence else {}),
    )
