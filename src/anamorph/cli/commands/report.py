"""``anamorph report``: one HTML page about a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments, ImageList
from anamorph.cli.terminal.messages import Messages
from anamorph.cli.terminal.models import ModelArguments
from anamorph.cli.terminal.places import path_beside

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from anamorph.estimator import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph report model.safetensors -o report.html
anamorph report model.safetensors scans/ -o report.html --latents model.latents.tsv
anamorph report model.safetensors scans/ --participants participants.tsv --label sex"""


@options.command()
def report(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="HTML", help="Page to write.")
    ] = Path("report.html"),
    latents: Annotated[
        Path | None,
        typer.Option(
            metavar="TSV",
            help="Table of latents, as written by 'fit' or 'encode'. By default they are found "
            "from the images, or without images in the table that 'fit' wrote beside the model.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --participants to colour latents by, numbers or categories.",
        ),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGES",
            help="Images that the model was not fitted to, a folder or a quoted pattern: how well "
            "it reconstructs them.",
        ),
    ] = None,
    explorer: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML", help="Page that 'anamorph explore' wrote, which the report links to."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
    model_arguments: ModelArguments,
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Write one HTML page about a model: its modes, samples and how it was fitted.

    With images it also shows how well the model fits them, and with latents
    where they lie. The page needs no network, and can be sent to others.
    """
    if label is not None and given.participants is None:
        raise typer.BadParameter("needs --participants", param_hint="--label")

    from anamorph.report import write_report

    model = model_arguments.load()
    found = given.find() if given.are_given else None
    model_arguments.reserve([output], [latents, explorer, *given.inputs(found)])
    if found is None:
        shown = _read_known_latents(model, model_arguments.model_file, latents, messages)
    else:
        shown = _open_images(model, given, found, latents)
    if label is not None and given.participants is not None:
        shown["labels"] = _read_labels(given.participants, label, shown.get("names"))
    if held_out is not None:
        others = replace(given, arguments=[held_out], participants=None)
        shown["held_out"] = others.open_for(model, others.find())
    is_encoding = found is not None and latents is None
    doing = "Encoding images, then writing" if is_encoding else "Writing"
    with messages.waiting(f"{doing} the report"):
        write_report(model, output, **shown, label_name=label, title=title, explorer=explorer)
    messages.wrote(output)


def _read_known_latents(
    model: ShapeAppearanceModel, model_file: Path, table: Path | None, messages: Messages
) -> dict[str, Any]:
    """Return names and latents for `write_report`, from the given table or that of the fit."""
    from anamorph.images.errors import TableError
    from anamorph.storage.tables import read_latents

    is_given = table is not None
    table = table or path_beside(model_file, ".latents.tsv")
    if not is_given and not table.exists():
        return {}
    try:
        names, latents = read_latents(table, len(model.latent_precision_), model.pose_names_)
    except TableError as error:
        if is_given:
            raise
        messages.say(f"Latents are not shown: {error}")  # the user did not ask for them
        return {}
    return {"names": names, "latents": latents}


def _open_images(
    model: ShapeAppearanceModel, given: ImageArguments, found: ImageList, table: Path | None
) -> dict[str, Any]:
    """Return images and names for `write_report`, and their latents if there is a table."""
    from anamorph.storage.tables import read_latents

    shown: dict[str, Any] = {"images": given.open_for(model, found), "names": found.names}
    if table is not None:
        names, latents = read_latents(table, len(model.latent_precision_), model.pose_names_)
        shown["latents"] = latents[find_rows(given, found, names, table)]
    return shown


def find_rows(given: ImageArguments, found: ImageList, names: list[str], table: Path) -> list[int]:
    """Return the row of each image in a table, by the name of its participant or its file."""
    rows = {name: row for row, name in enumerate(names)}
    by_file = replace(given, participants=None).find()
    file_names = dict(zip(by_file.files, by_file.names, strict=True))
    chosen = []
    for name, files in zip(found.names, found.files, strict=True):
        row = rows.get(name, rows.get(file_names[files]))
        if row is None:
            raise CommandError(f"{table} has no row for {name}: encode the images again")
        chosen.append(row)
    return chosen


def _read_labels(participants: Path, label: str, names: list[str] | None) -> NDArray[np.object_]:
    """Return the label of each image, or of each row of latents."""
    from anamorph.images.participants import read_participants

    if names is None:
        raise CommandError(
            "--label colours latents: give images, or the table that 'anamorph fit' or "
            "'anamorph encode' wrote as --latents"
        )
    return read_participants(participants).matched(names).values(label)
