"""Outputs of commands that take images from a BIDS dataset: derivatives of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.arrays.typing import Float64Array
    from anamorph.images.bids import BidsFile


def tables_beside(output: Path, bids: Sequence[BidsFile]) -> list[Path]:
    """Return the tables of latents that a command writes beside its output."""
    from anamorph.storage.derivatives import participants_path

    return [participants_path(output.parent, bids)]


def write_tables_beside(
    output: Path,
    dataset: Path,
    bids: Sequence[BidsFile],
    names: list[str],
    latents: Float64Array,
    command: str,
) -> list[Path]:
    """Make the folder of an output one of derivatives, with a table of participants and latents.

    Parameters
    ----------
    output : Path
    dataset : Path
        The BIDS dataset that the images come from.
    bids : N BidsFile
    names : N strings
    latents : array of shape (N, K)
    command : str
        What made the output, e.g. "anamorph fit".

    Returns
    -------
    list of Path
        The files written.
    """
    from anamorph.storage.derivatives import write_description, write_participants

    folder = output.parent
    table = write_participants(folder, dataset, bids, names, latents)
    return [table, write_description(folder, command)]


def image_paths(
    folder: Path, names: Sequence[str], bids: Sequence[BidsFile] | None, what: str, extension: str
) -> list[Path]:
    """Return where images go that a command makes from others.

    Parameters
    ----------
    folder : Path
    names : N strings
    bids : N BidsFile, optional
        Where the images come from, if that is a BIDS dataset.
    what : str
        What is made of them, e.g. "reconstruction".
    extension : str
        E.g. ".nii.gz".
    """
    if bids is None:
        return paths_in(folder, names, f"_{what}{extension}")
    from anamorph.storage.derivatives import derivative_path

    return [derivative_path(folder, file, what, extension) for file in bids]


def describe_folder(folder: Path, bids: Sequence[BidsFile] | None, command: str) -> None:
    """Make a folder one of derivatives, if the images in it are made from a BIDS dataset."""
    if bids is not None:
        from anamorph.storage.derivatives import write_description

        write_description(folder, command)
