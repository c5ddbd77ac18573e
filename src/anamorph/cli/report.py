"""``anamorph report``: a model as a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli import options
from anamorph.cli.errors import CommandError
from anamorph.cli.images import ImageArguments
from anamorph.cli.messages import talking
from anamorph.cli.models import load_model
from anamorph.cli.places import beside, reserve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from anamorph.model import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph report model.safetensors -o report.html
anamorph report model.safetensors scans/ -o report.html --latents model.latents.tsv
anamorph report model.safetensors scans/ --participants participants.tsv --label sex"""


def report(
    model_file: options.ModelFile,
    images: options.OptionalImages = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="HTML", help="Page to write.")
    ] = Path("report.html"),
    latents: Annotated[
        Path | None,
        typer.Option(metavar="TSV", help="Table of latents, as written by 'fit' or 'encode'."),
    ] = None,
    participants: options.ParticipantsTable = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants to colour latents by."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Of the page.")] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    tissues: options.Tissues = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML page about a model: its modes, samples and how it was fitted.

    With images it also shows how well the model fits them, and with latents
    where they lie. The page needs no network, and can be sent to others.
    """
    if label is not None and participants is None:
        raise typer.BadParameter("needs --participants", param_hint="--label")

    from anamorph.report import write_report

    with talking("report", quiet, as_json) as messages:
        model = load_model(model_file, threads)
        given = ImageArguments(images or [], tissues, participants)
        table = latents or _table_beside(model_file)
        shown = _shown(model, given, table, label, is_given=latents is not None)
        inputs = [path for path in (model_file, latents, participants) if path is not None]
        reserve([output], inputs, force=force)
        with messages.waiting("Writing the report"):
            write_report(model, output, **shown, label_name=label, title=title)
        messages.wrote(output)


def _table_beside(model_file: Path) -> Path | None:
    """Return the table of latents that a fit wrote beside its model, if it is still there."""
    table = beside(model_file, ".latents.tsv")
    return table if table.exists() else None


def _shown(
    model: ShapeAppearanceModel,
    given: ImageArguments,
    table: Path | None,
    label: str | None,
    *,
    is_given: bool,
) -> dict[str, Any]:
    """Return images, latents, names and labels for `write_report`, all in one order.

    A table that was not given, but found beside the model, may be about other images.
    """
    from anamorph.io.participants import read_participants
    from anamorph.io.tables import read_latents

    shown: dict[str, Any] = {"images": None, "latents": None, "names": None, "labels": None}
    if table is not None:
        shown["names"], shown["latents"] = read_latents(table, len(model.latent_precision_))
    if given.arguments:
        found = given.find()
        files = given.open_for(model, found)
        shown["images"] = files
        if table is not None and (is_given or set(found.names) <= set(shown["names"])):
            shown["latents"] = _rows_of(found.names, shown["names"], shown["latents"], table)
        else:
            shown["latents"] = None if label is None else model.transform(files)
        shown["names"] = found.names
    if label is not None and given.participants is not None:
        if shown["latents"] is None:
            raise CommandError(
                "--label colours latents: give images, or the table that 'anamorph fit' or "
                "'anamorph encode' wrote as --latents"
            )
        people = read_participants(given.participants).matched(shown["names"])
        shown["labels"] = people.labels(label)
    return shown


def _rows_of(
    wanted: list[str], names: list[str], latents: NDArray[np.float64], table: Path
) -> NDArray[np.float64]:
    """Return the latents of some of the names."""
    rows = {name: row for row, name in enumerate(names)}
    for name in wanted:
        if name not in rows:
            raise CommandError(f"{table} has no row for {name}: encode the images again")
    return latents[[rows[name] for name in wanted]]
