"""``anamorph federation release-check``: whether a model tells who was in its fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.models import load_model

EXAMPLES = """[bold]Examples[/bold]
anamorph federation release-check shared.safetensors --members scans/ --others held-out/"""


def release_check(
    model_file: options.ModelFile,
    members: Annotated[
        list[str],
        typer.Option(
            metavar="IMAGES", help="Images of the fit: a folder or file. May be repeated."
        ),
    ],
    others: Annotated[
        list[str],
        typer.Option(
            metavar="IMAGES", help="Images like these that were not in the fit. May be repeated."
        ),
    ],
    threads: options.Threads = None,
    tissues: options.Tissues = False,
    resample: options.Resample = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure whether a model tells who was in its fit, before it is released.

    Two attacks that need nothing but the model try to tell members from others.
    A site runs this on its own images, and nothing leaves it. The others must be
    like the members in everything else: same scanner, same kind of people.
    """
    from rich.table import Table

    from anamorph.federation.coordinator import release_check as checking

    with talking("release-check", quiet, as_json) as messages:
        model = load_model(model_file, threads)
        opened = []
        for paths in (members, others):
            given = ImageArguments(paths, tissues, None, resample, None)
            opened.append(given.open_for(model, given.find()))
        n_images = sum(len(images) for images in opened)
        with messages.waiting(f"Encoding {counted(n_images, 'image')}"):
            try:
                result = checking.release_check(model, *opened)
            except ValueError as error:
                raise CommandError(str(error)) from None
        table = Table(box=None, header_style="bold")
        for name in ("attack", "AUC", "95 % interval", "found at 1 % false alarms"):
            table.add_column(name, justify="left" if name == "attack" else "right")
        for attack in result.attacks:
            interval = f"{attack.low:.2f} to {attack.high:.2f}"
            table.add_row(attack.name, f"{attack.auc:.2f}", interval, f"{attack.found:.0%}")
        messages.answer(table)
        messages.say(result.verdict)
        messages.result(**asdict(result), grade=result.grade, verdict=result.verdict)
