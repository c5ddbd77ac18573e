"""``anamorph site audit``: what left a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.messages import counted, talking

EXAMPLES = """[bold]Examples[/bold]
anamorph site audit hospital-a/
anamorph site audit hospital-a/ --json"""


def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the site, or its audit log.")
    ],
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what a site answered and refused: when, to which question, and what left."""
    from rich.table import Table

    from anamorph.federation.site.audit import AuditLog

    path = folder / "audit.jsonl" if folder.is_dir() else folder
    if not path.exists():
        raise CommandError(
            f"{path} does not exist: give the folder of a site that has been started"
        )
    with talking("audit", quiet, as_json) as messages:
        lines = list(AuditLog(path).read())
        table = Table(box=None, header_style="bold")
        for name in ("time", "event", "question", "images", "what left", "kB", "masked"):
            table.add_column(
                name, justify="right" if name in ("images", "kB") else "left", overflow="fold"
            )
        for line in lines:
            table.add_row(*_cells(line))
        messages.answer(table)
        answered = [line for line in lines if line["event"] == "answered"]
        n_bytes = sum(line["bytes"] for line in answered)
        n_refused = sum(line["event"] == "refused" for line in lines)
        messages.say(
            f"{counted(len(answered), 'answer')}, {n_bytes / 1e6:.3g} MB; {n_refused} refused"
        )
        messages.result(n_answers=len(answered), n_bytes=n_bytes, n_refused=n_refused, lines=lines)


def _cells(line: dict[str, Any]) -> list[str]:
    """Return the cells of a row of the table."""
    if line["event"] == "answered":
        left = ", ".join(
            f"{name} {'x'.join(map(str, shape)) or '1'}" for name, shape in line["fields"].items()
        )
        return [
            line["time"],
            "answered",
            line["question"],
            str(line["n_images"]),
            left or "nothing",
            f"{line['bytes'] / 1e3:.3g}",
            "yes" if line["masked"] else "no",
        ]
    asked = line.get("question", line.get("do", ""))
    return [line["time"], line["event"], asked, "", line.get("text", ""), "", ""]
