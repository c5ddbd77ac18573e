"""A table of participants (BIDS ``participants.tsv``): labels and covariates, matched to files."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import TableError, short_reason
from anamorph.images.readers import stem_of

_ID = "participant_id"
_MISSING = ("n/a", "")
_BIDS_SUBJECT = re.compile(r"sub-[a-zA-Z0-9]+")


@dataclass(frozen=True)
class Participants:
    """A table with a row for each participant.

    Attributes
    ----------
    path : Path
        The file of the table, for error messages.
    ids : list of str
    columns : dict of list of str
        Texts of the file, by name of column.
    """

    path: Path
    ids: list[str]
    columns: dict[str, list[str]]

    def matched(self, files: Sequence[str | os.PathLike[str]]) -> Participants:
        """Return a table with one row per file, in the order of the files.

        A file belongs to the participant whose id is its name, the name of a folder around it, or
        the beginning of its name. An id that begins with "sub-" may be anywhere in these names.
        """
        order = []
        for file in files:
            row = self._find_row(Path(file))
            if row is None:
                raise TableError(
                    f"{self.path} has no {_ID} for {file}: add a row to it, or leave the file out"
                )
            order.append(row)
        return Participants(
            self.path,
            [self.ids[row] for row in order],
            {name: [texts[row] for row in order] for name, texts in self.columns.items()},
        )

    def has(self, file: str | os.PathLike[str]) -> bool:
        """Return whether a file belongs to a participant, as in `matched`."""
        return self._find_row(Path(file)) is not None

    def labels(self, column: str) -> NDArray[np.str_]:
        """Return a column as texts, (N,); a missing text is a TableError."""
        texts = self._find_column(column)
        for name, text in zip(self.ids, texts, strict=True):
            if text in _MISSING:
                raise TableError(
                    f"{self.path}: {name} has no {column}: fill it in, or leave it out"
                )
        return np.array(texts, np.str_)

    def covariate(self, column: str) -> NDArray[np.float64]:
        """Return a column as numbers, (N,), NaN for n/a."""
        numbers = np.full(len(self.ids), np.nan)
        for row, text in enumerate(self._find_column(column)):
            if text in _MISSING:
                continue
            try:
                numbers[row] = float(text)
            except ValueError:
                raise TableError(
                    f"{self.path}: {column} of {self.ids[row]} must be a number or n/a, got "
                    f"{text!r}"
                ) from None
        return numbers

    def values(self, column: str) -> NDArray[np.object_]:
        """Return a column as numbers if all its texts are numbers, else as texts, (N,).

        Numbers are integers if all of them are; n/a becomes None.
        """
        texts = [None if text in _MISSING else text for text in self._find_column(column)]
        for kind in (int, _finite_number):
            with suppress(ValueError):
                return np.array([text and kind(text) for text in texts], np.object_)
        return np.array(texts, np.object_)

    def _find_column(self, name: str) -> list[str]:
        if name not in self.columns:
            have = ", ".join(self.columns) or "none"
            raise TableError(f"{self.path} has no column {name!r}: it has {have}")
        return self.columns[name]

    @cached_property
    def _rows_by_id(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def _find_row(self, path: Path) -> int | None:
        names = (stem_of(path), *reversed(path.parent.parts))
        for name in names:
            found = _BIDS_SUBJECT.search(name)
            for known in (name, found.group() if found else None):
                if known in self._rows_by_id:
                    return self._rows_by_id[known]
        prefixes = [known for known in self._rows_by_id if _starts_with(names[0], known)]
        return self._rows_by_id[max(prefixes, key=len)] if prefixes else None


def read_participants(path: str | os.PathLike[str]) -> Participants:
    """Read a table of participants: tab-separated, with a header and ``participant_id``.

    Parameters
    ----------
    path : path

    Returns
    -------
    Participants

    Raises
    ------
    TableError
        If the file is not such a table, or an id is missing or repeated.
    """
    path = Path(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except FileNotFoundError:
        raise TableError(f"{path} does not exist: check its name") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = short_reason(error)
        raise TableError(f"{path} cannot be read as a table of texts ({why})") from None
    header = [name.strip() for name in lines[0]] if lines else []
    if _ID not in header:
        raise TableError(
            f"{path} has no column {_ID}: its first line must name the columns, between tabs"
        )
    if len(set(header)) < len(header):
        raise TableError(f"{path} has two columns of one name: rename one of them")
    rows = [_checked_row(path, number, line, len(header)) for number, line in _numbered(lines)]
    columns = {name: [row[n] for row in rows] for n, name in enumerate(header)}
    ids = columns.pop(_ID)
    _check_ids(path, ids)
    return Participants(path, ids, columns)


def _numbered(lines: list[list[str]]) -> list[tuple[int, list[str]]]:
    """Return the rows below the header that are not blank, with their line numbers."""
    return [(n, line) for n, line in enumerate(lines[1:], start=2) if any(map(str.strip, line))]


def _checked_row(path: Path, number: int, line: list[str], n_columns: int) -> list[str]:
    if len(line) != n_columns:
        raise TableError(
            f"{path}, line {number}, has {len(line)} values, and the header names {n_columns} "
            "columns: write n/a where a value is missing"
        )
    return [text.strip() for text in line]


def _check_ids(path: Path, ids: list[str]) -> None:
    seen = set()
    for row, name in enumerate(ids, start=1):
        if name in _MISSING:
            raise TableError(f"{path} has no {_ID} in row {row}: fill it in")
        if name in seen:
            raise TableError(f"{path} has {_ID} {name} twice: keep one row for each participant")
        seen.add(name)


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _starts_with(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and not name[len(beginning) : len(beginning) + 1].isalnum()
