"""``anamorph verify``: tell whether model files and checkpoints are whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import Messages, counted

EXAMPLES = """[bold]Examples[/bold]
anamorph verify model.safetensors
anamorph verify *.safetensors model.checkpoint --json"""

StoredFiles = Annotated[
    list[Path],
    typer.Argument(metavar="FILES", help="Model files and checkpoints, as fits write them."),
]


@options.command()
def verify(files: StoredFiles, messages: Messages) -> None:
    """Check that model files and checkpoints are whole and can be used.

    Compares the checksum of each file, and checks names, shapes, types and
    ranges of all that it holds. The first damaged file ends it with an error.
    """
    from anamorph.storage.verify import Verified, verify_file

    def describe(path: Path, found: Verified) -> str:
        checked = "checksum right" if found.has_checksum else "no checksum (written by 0.1)"
        iterations = found.n_iterations
        after = "" if iterations is None else f" after {counted(iterations, 'iteration')}"
        return (
            f"{path}: {found.kind}{after}, format version {found.version}, {checked}, "
            f"{counted(found.n_arrays, 'array')}, {found.n_bytes:,} bytes"
        )

    verified = []
    for path in files:
        found = verify_file(path)
        messages.say(describe(path, found))
        verified.append({"file": str(path), **asdict(found)})
    messages.result(files=verified)
