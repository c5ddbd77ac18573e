"""``anamorph quality``: which images to look at first, and what may be wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments

EXAMPLES = """[bold]Examples[/bold]
anamorph quality model.safetensors scans/ -o quality.html
anamorph quality model.safetensors new/ -o quality.html --table quality.tsv"""

_MOST_TOLD = 5


@options.command()
def quality(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="HTML", help="Page to write.")
    ] = Path("quality.html"),
    table: Annotated[
        Path | None,
        typer.Option(metavar="TSV", help="Table of all images to write as well, oddest first."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
    model_arguments: ModelArguments,
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Rank images by how odd they are, and say what may be wrong with them.

    Flipped, tilted, cropped and empty scans, those of another contrast, and
    what the model explains badly come first. The page has their pictures.
    """
    from anamorph.report.judging import REMARKABLE
    from anamorph.report.quality import write_quality

    model = model_arguments.load()
    found = given.find()
    outputs = [output] if table is None else [output, table]
    model_arguments.reserve(outputs, given.inputs(found))
    files = given.open_for(model, found)
    with messages.counting(f"Looking at {counted(len(found), 'image')}"):
        judged = write_quality(model, output, files, names=found.names, table=table, title=title)
    odd = [one for one in judged if one.oddness > REMARKABLE]
    messages.say(f"{len(odd)} of {counted(len(found), 'image')} stand out")
    for one in odd[:_MOST_TOLD]:
        messages.say(f"  {one.name}: {'; '.join(one.reasons) or 'unlike the others'}")
    messages.wrote(*outputs)
    messages.result(
        n_images=len(found),
        n_odd=len(odd),
        oddest=[{"name": one.name, "reasons": list(one.reasons)} for one in odd[:_MOST_TOLD]],
    )
