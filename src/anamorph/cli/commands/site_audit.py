"""``anamorph site audit``: what left a site, and whether the log of it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.places import reserve

EXAMPLES = """[bold]Examples[/bold]
anamorph site audit hospital-a/
anamorph site audit hospital-a/ --json
anamorph site audit hospital-a/ --verify
anamorph site audit hospital-a/ --verify --head 5e88...
anamorph site audit hospital-a/ --export audit-2026.jsonl"""


def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the site, or its audit log.")
    ],
    verify: Annotated[
        bool,
        typer.Option("--verify", metavar="", help="Check the chain of hashes, and show its head."),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="With --verify: a head that you wrote down; it must be in the log."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the log there as it is, for others to verify."),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what a site answered and refused: when, to which question, and what left.

    Every line of the log holds the hash of the line before it. --verify finds
    the first line that was changed, removed or inserted, and a tail that was
    cut off. Write down the head that it shows: no later log can hide a change
    to what was there by then.
    """
    path = folder / "audit.jsonl" if folder.is_dir() else folder
    if not path.exists():
        raise CommandError(
            f"{path} does not exist: give the folder of a site that has been started"
        )
    if head is not None and not verify:
        raise CommandError("--head is compared by --verify: give both")
    with talking("audit", quiet, as_json) as messages:
        if verify:
            _verify(path, head, messages)
        if export is not None:
            reserve([export], [path], force=force)
            _export(path, export, messages)
        if not verify and export is None:
            _show(path, messages)


def _verify(path: Path, written_down: str | None, messages: Messages) -> None:
    """Check the chain; raise a CommandError that names the first broken line."""
    from anamorph.federation.site.audit_chain import check_chain

    report = check_chain(path, written_down)
    if report.fault:
        raise CommandError(f"{path} is broken: {report.fault}")
    messages.say(f"{counted(report.n_lines, 'line')}, none changed, removed or inserted")
    if report.n_before_chain:
        n_before = report.n_before_chain
        messages.say(
            f"The chain begins at line {n_before + 1}: the {counted(n_before, 'line')} before it "
            "are from an older version, and are as they were when the chain began"
        )
    if not report.has_head_file:
        messages.say("There is no head beside the log: lines may be missing at its end")
    messages.say(f"Head: {report.head}")
    messages.result(
        n_lines=report.n_lines,
        n_before_chain=report.n_before_chain,
        head=report.head,
        has_head_file=report.has_head_file,
    )


def _export(path: Path, target: Path, messages: Messages) -> None:
    """Copy the complete lines of a log, byte by byte, so that the chain can be checked there."""
    from anamorph.federation.site.audit_chain import complete_part
    from anamorph.storage.replace import replacing

    with replacing(target) as temporary:
        temporary.write_bytes(complete_part(path.read_bytes()))
    messages.wrote(target)


def _show(path: Path, messages: Messages) -> None:
    """Show the log as a table."""
    from rich.table import Table

    from anamorph.federation.site.audit import AuditLog

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
    messages.say(f"{counted(len(answered), 'answer')}, {n_bytes / 1e6:.3g} MB; {n_refused} refused")
    privacy = _last_private_analysis(path.with_name("analyses.jsonl"))
    if privacy is not None:
        messages.say(
            f"Private statistics: epsilon {privacy['epsilon_of_year']:.3g} of "
            f"{privacy['allowed']:g} was spent within a year when the last one was answered"
        )
    messages.result(
        n_answers=len(answered),
        n_bytes=n_bytes,
        n_refused=n_refused,
        privacy=privacy,
        lines=lines,
    )


def _last_private_analysis(path: Path) -> dict[str, Any] | None:
    """Return the last line about a private analysis in the record of a site, if there is one."""
    from anamorph.federation.site.append_only import JsonLines

    lines = JsonLines(path, "the record of analyses").read()
    return next((line for line in reversed(list(lines)) if "multiplier" in line), None)


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
