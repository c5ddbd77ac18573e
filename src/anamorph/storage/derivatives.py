"""Derivatives of a BIDS dataset: the description of the folder, and participants with latents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from anamorph import __version__
from anamorph.arrays.typing import Float64Array
from anamorph.images.bids import PARTICIPANTS, BidsFile
from anamorph.images.participants import read_participants
from anamorph.storage.replace import replacing
from anamorph.storage.tables import write_latents

DESCRIPTION = "dataset_description.json"
IMAGES = "images.tsv"

_BIDS_VERSION = "1.8.0"
_ADDRESS = "https://bids-specification.readthedocs.io"


def write_description(folder: Path, command: str) -> Path:
    """Write the description that makes a folder one of derivatives, unless it has one.

    Parameters
    ----------
    folder : Path
        It exists.
    command : str
        What made the derivatives, e.g. "anamorph fit".

    Returns
    -------
    Path
        The file of the description.
    """
    path = folder / DESCRIPTION
    if path.exists():
        return path
    description = {
        "Name": "Shape and appearance model",
        "BIDSVersion": _BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [
            {"Name": "anamorph", "Version": __version__, "Description": f"Written by '{command}'"}
        ],
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return path


def write_participants(
    folder: Path, root: Path, files: Sequence[BidsFile], names: Sequence[str], latents: Float64Array
) -> Path:
    """Write participants.tsv with the columns of the dataset's own, and the latents.

    Where participants have several images, the table is images.tsv, with a row for each image.

    Parameters
    ----------
    folder : Path
        Where to write it.
    root : Path
        Of the dataset.
    files : N BidsFile
    names : N strings
        Of the images.
    latents : array of shape (N, K)

    Returns
    -------
    Path
        The table.
    """
    path, own = participants_path(folder, files), root / PARTICIPANTS
    participants = [file.participant for file in files]
    columns: dict[str, list[str]] = {}
    if path.name != PARTICIPANTS:
        columns["participant"] = participants
    if own.exists():
        table = read_participants(own)
        rows = {name: number for number, name in enumerate(table.ids)}
        for column, texts in table.columns.items():
            found = [rows.get(name) for name in participants]
            columns[column] = ["n/a" if row is None else texts[row] or "n/a" for row in found]
    write_latents(path, participants if path.name == PARTICIPANTS else names, latents, columns)
    return path


def participants_path(folder: Path, files: Sequence[BidsFile]) -> Path:
    """Return the table of latents in a folder of derivatives: of participants, or of images."""
    participants = {file.participant for file in files}
    return folder / (PARTICIPANTS if len(participants) == len(files) else IMAGES)


def derivative_path(folder: Path, file: BidsFile, description: str, extension: str) -> Path:
    """Return where an image made from another goes.

    Parameters
    ----------
    folder : Path
        Of the derivatives.
    file : BidsFile
        What it was made from.
    description : str
        Entity ``desc`` of its name, e.g. "reconstruction".
    extension : str
        E.g. ".nii.gz".
    """
    return folder / file.folder / f"{file.named(desc=description)}{extension}"
