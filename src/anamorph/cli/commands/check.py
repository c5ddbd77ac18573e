"""``anamorph check``: what image files hold, and whether they go together, before a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import BAD_INPUT, in_flags, tell_error
from anamorph.cli.terminal.images import find_files
from anamorph.cli.terminal.messages import Messages, counted

if TYPE_CHECKING:
    from anamorph.images.inspect import FileFacts

EXAMPLES = """[bold]Examples[/bold]
anamorph check scans/
anamorph check 'segmentations/*.mgz' --labels --json"""

_COLUMNS = (
    "file",
    "grid",
    "voxel",
    "axes",
    "overlap",
    "type",
    "values",
    "typical",
    "looks like",
    "centre",
    "missing",
)


@options.command()
def check(
    *,
    arguments: options.Images,
    labels: options.Labels = False,
    channel_axis: options.ChannelAxis = None,
    missing_value: options.MissingValue = None,
    messages: Messages,
) -> None:
    """Look at images before a fit: what each file holds, and what is odd.

    Shows grid, voxel size, orientation, overlap with the others, type and
    range of values, what they look like, centre of mass (mm, or voxels of
    pictures) and what is missing. Ends with 1 if a file cannot be read.
    """
    from rich import box
    from rich.table import Table

    from anamorph.images.inspect import inspect_files

    paths = find_files(arguments)
    with messages.waiting(f"Reading {counted(len(paths), 'file')}"):
        found = inspect_files(paths, channel_axis, as_labels=labels, missing_value=missing_value)
    if found.files:
        table = Table(*_COLUMNS, box=box.SIMPLE)
        for file in found.files:
            table.add_row(*_format_file(file))
        messages.answer(table)
    for remark in found.remarks:
        messages.say(in_flags(remark))
    messages.say(
        f"{counted(len(found.files), 'file')} can be read, {len(found.problems)} cannot"
        + ("" if found.remarks or found.problems else "; nothing is odd about them together")
    )
    messages.result(
        files=[file.plain() for file in found.files],
        problems=found.problems,
        remarks=found.remarks,
    )
    for problem in found.problems:
        tell_error(in_flags(problem))
    if found.problems:
        messages.finish()
        raise typer.Exit(BAD_INPUT)


def _format_file(file: FileFacts) -> tuple[str, ...]:
    """Return a row of a table about a file: what `_COLUMNS` names."""
    from anamorph.images.grid import format_shape

    size = "" if file.voxel_size is None else " x ".join(f"{side:.3g}" for side in file.voxel_size)
    channels = f" x {file.n_channels} channels" if file.n_channels > 1 else ""
    guess = " (guessed)" if file.place_is_guess else ""
    return (
        file.path.name,
        format_shape(file.shape) + channels,
        f"{size} {file.units or ''}".strip() or "-",
        (file.orientation or "-") + guess,
        "-" if file.overlap is None else f"{file.overlap:.0%}",
        file.stored,
        f"{file.lowest:.4g} to {file.highest:.4g}",
        f"{file.typical:.3g}",
        file.looks_like,
        ", ".join(f"{length:.1f}" for length in file.centre),
        f"{file.missing:.1%}",
    )
