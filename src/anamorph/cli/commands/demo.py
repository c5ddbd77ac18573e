"""``anamorph demo``: a first look, without any files of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import talking

EXAMPLES = """[bold]Examples[/bold]
anamorph demo
anamorph demo --volumes -o demo-volumes/"""


def demo(
    volumes: Annotated[
        bool,
        typer.Option("--volumes", metavar="", help="In 3D, on volumes that it simulates."),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to."),
    ] = Path("demo-output"),
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to handwritten digits that come with anamorph, and draw it.

    It takes about a minute, and ends with a report to open in a browser.
    """
    from anamorph.cli.demonstration import run_demo

    with talking("demo", quiet, as_json) as messages:
        output.mkdir(parents=True, exist_ok=True)
        # What was written is said by the demonstration.
        paths = run_demo(output, volumes=volumes, n_threads=threads, say=messages.say)
        messages.result(files=[str(path) for path in paths])
