"""Tables for people: tab-separated, with a header and ``participant_id`` first."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.images.errors import TableError
from anamorph.images.participants import read_participants
from anamorph.storage.replace import replacing

_MISSING = ("n/a", "")  # what `read_participants` takes for no name
_POSE_COLUMN = re.compile(r"shift\d|turn\d\d|zoom\d?|shear\d\d")  # see `geometry.pose.pose_names`


def write_table(
    path: str | os.PathLike[str], names: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> None:
    """Write a table with one row per image, completely or not at all.

    Parameters
    ----------
    path : path
    names : N strings
        The column ``participant_id``.
    columns : dict of N values each
        Numbers are written with all their digits.
    """
    check_names(names)
    values = [[_format_value(value) for value in column] for column in columns.values()]
    rows = zip(names, *values, strict=True)
    lines = ["\t".join(row) for row in (("participant_id", *columns), *rows)]
    with replacing(Path(path)) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_names(names: Sequence[str]) -> None:
    """Raise a TableError if a table could not be read back with one of these names.

    A tab would end a column, and a line break a row; texts in tables are Unicode, without blanks
    at their ends.
    """
    for name in names:
        odd = [character for character in name if _ends_something(character)]
        if odd:
            raise TableError(
                f"the name {name!r} of an image has the character {odd[0]!r}, which a table cannot "
                "hold: rename the file"
            )
        if name != name.strip() or name in _MISSING:
            raise TableError(
                f"the name {name!r} of an image is empty, n/a, or has blanks at its ends, which a "
                "table would not keep: rename the file"
            )


def _ends_something(character: str) -> bool:
    """Tell whether a character is a control character, or half of one that is not UTF-8."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def write_latents(
    path: str | os.PathLike[str],
    names: Sequence[str],
    latents: Float64Array,
    more: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Write latents (N, K) to columns z1 to zK of a table.

    Parameters
    ----------
    path : path
    names : N strings
        The column ``participant_id``.
    latents : array of shape (N, K)
    more : dict of N values each, optional
        Columns after the latents; none by default.
    """
    columns = {f"z{k}": column.tolist() for k, column in enumerate(latents.T, start=1)}
    write_table(path, names, columns | dict(more or {}))


def pose_columns(names: Sequence[str], poses: Float64Array | None) -> dict[str, Sequence[Any]]:
    """Return poses (N, P) as columns of a table, by the names of their coordinates."""
    if poses is None:
        return {}
    return {name: column.tolist() for name, column in zip(names, poses.T, strict=True)}


def read_poses(path: str | os.PathLike[str], names: Sequence[str]) -> Float64Array | None:
    """Return the poses (N, P) in a table; None if it has no column of a pose.

    Parameters
    ----------
    path : path
    names : P strings
        Of the coordinates of poses: see `geometry.pose.pose_names`.

    Raises
    ------
    TableError
        If the table has some of the columns and not all, or a number is missing.
    """
    table = read_participants(path)
    missing = [name for name in names if name not in table.columns]
    if len(missing) == len(names):
        return None
    if missing:
        raise TableError(f"{path} lacks {', '.join(missing)} of the poses: make it with this model")
    poses = np.stack([table.covariate(name) for name in names], axis=1)
    if not np.isfinite(poses).all():
        raise TableError(f"{path}: a number of a pose is missing or infinite: leave the image out")
    return poses


def read_latents(
    path: str | os.PathLike[str], n_latents: int, pose_names: Sequence[str] | None = None
) -> tuple[list[str], Float64Array]:
    """Return the names and the latents in a table.

    Parameters
    ----------
    path : path
    n_latents : int
        K, the number of latents of the model.
    pose_names : P strings, optional
        Of the coordinates of poses of the model: a table with other poses belongs to another model.
        By default this is not looked at.

    Returns
    -------
    names : list of str
    latents : array of shape (N, K)

    Raises
    ------
    TableError
        If the table has another number of latents, or other poses, or a number is missing.
    """
    table = read_participants(path)
    placed = [name for name in table.columns if _POSE_COLUMN.fullmatch(name)]
    if placed and pose_names is not None and set(placed) != set(pose_names):
        raise TableError(
            f"{path} has the poses {', '.join(placed)}, and the model has "
            f"{', '.join(pose_names) or 'none'}: make it with this model"
        )
    wanted = [f"z{k}" for k in range(1, n_latents + 1)]
    missing = [name for name in wanted if name not in table.columns]
    if missing or f"z{n_latents + 1}" in table.columns:
        have = sum(name[:1] == "z" and name[1:].isdigit() for name in table.columns)
        raise TableError(
            f"{path} must have columns z1 to z{n_latents}, as many latents as the model has, and "
            f"has {have}: make it with this model"
        )
    if not table.ids:
        raise TableError(f"{path} has no rows: it must have one for each image")
    latents = np.stack([table.covariate(name) for name in wanted], axis=1)
    for name, row in zip(table.ids, latents, strict=True):
        if not np.isfinite(row).all():
            raise TableError(f"{path}: a latent of {name} is missing or infinite: leave it out")
    return table.ids, latents


def _format_value(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)
