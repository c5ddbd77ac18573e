"""``anamorph explore``: one HTML page in which people move latents and see images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.commands.report import find_rows
from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import ImageArguments, OptionalImageArguments
from anamorph.cli.terminal.messages import Messages
from anamorph.cli.terminal.models import ModelArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.participants import Participants

EXAMPLES = """[bold]Examples[/bold]
anamorph explore model.safetensors -o explorer.html
anamorph explore model.safetensors model.latents.tsv -o explorer.html
anamorph explore model.safetensors scans/ --participants participants.tsv"""


@options.command()
def explore(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="HTML", help="Page to write.")
    ] = Path("explorer.html"),
    latents: Annotated[
        Path | None,
        typer.Option(
            metavar="TSV",
            help="Table of latents, as written by 'fit' or 'encode', in place of images or beside "
            "them; other columns of the table can be shown too. By default images are encoded.",
        ),
    ] = None,
    max_megabytes: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Largest size of the page. Modes that do not fit are left out from the end, then "
            "images, and the page says so.",
        ),
    ] = 25.0,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Write one HTML page in which people move latents and see images.

    The page computes every image itself: it needs no network and no server,
    and opens from a disk. It holds latents and images of people only if you
    give them (images, or a table of latents), and then says so.
    """
    from anamorph.explorer import write_explorer

    if latents is None and len(given.arguments) == 1 and given.arguments[0].endswith(".tsv"):
        given, latents = replace(given, arguments=[]), Path(given.arguments[0])
    model = model_arguments.load()
    found = given.find() if given.are_given else None
    model_arguments.reserve([output], [latents, *given.inputs(found)])
    shown = _read_people(model, given, latents)
    is_encoding = "images" in shown and "latents" not in shown
    doing = "Encoding images, then writing" if is_encoding else "Writing"
    with messages.waiting(f"{doing} the explorer"):
        write_explorer(model, output, **shown, title=title, max_megabytes=max_megabytes)
    if shown:
        messages.say(f"{output} holds data of individuals: share it only as you may share those")
    messages.result(megabytes=output.stat().st_size / 1e6)
    messages.wrote(output)


def _read_people(
    model: ShapeAppearanceModel, given: ImageArguments, table: Path | None
) -> dict[str, Any]:
    """Return images, latents, names and covariates for `write_explorer`, of those given."""
    from anamorph.images.participants import read_participants
    from anamorph.storage.tables import read_latents

    shown: dict[str, Any] = {}
    covariates: dict[str, Any] = {}
    if given.are_given:
        found = given.find()
        shown |= {"images": given.open_for(model, found), "names": found.names}
    if table is not None:
        names, latents = read_latents(table, len(model.latent_precision_), model.pose_names_)
        rows = list(range(len(names)))
        if given.are_given:
            rows = find_rows(given, found, names, table)
        shown.setdefault("names", names)
        shown["latents"] = latents[rows]
        covariates |= _other_columns(read_participants(table), rows)
    if given.participants is not None and shown:
        people = read_participants(given.participants).matched(shown["names"])
        covariates |= _other_columns(people, range(len(people.ids)))
    return shown | ({"covariates": covariates} if covariates else {})


def _other_columns(table: Participants, rows: Sequence[int]) -> dict[str, Any]:
    """Return the columns of a table that are no latents, as numbers or texts."""
    return {
        name: table.values(name)[list(rows)]
        for name in table.columns
        if not (name[:1] == "z" and name[1:].isdigit())
    }
