"""Images of a BIDS dataset (bids-specification.readthedocs.io), found by their names.

A name is made of entities (``sub-01_ses-2_run-1``), a suffix that says what the image is (``T1w``)
and an extension. Nothing but names is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anamorph.images.errors import ImageError
from anamorph.images.readers import stem_of, suffix_of

PARTICIPANTS = "participants.tsv"

_NAME = re.compile(r"(?:[a-zA-Z0-9]+-[a-zA-Z0-9+]+_)*[a-zA-Z0-9]+")
_SUBJECT_FOLDER = re.compile(r"sub-[a-zA-Z0-9+]+")
_MOST_NAMED = 5


@dataclass(frozen=True)
class BidsFile:
    """An image of a dataset.

    Attributes
    ----------
    path : Path
    entities : dict of str
        In the order of the name, with ``sub`` first.
    suffix : str
        E.g. "T1w".
    datatype : str
        The folder within that of the subject or session, e.g. "anat"; "" if there is none.
    """

    path: Path
    entities: dict[str, str]
    suffix: str
    datatype: str

    @property
    def participant(self) -> str:
        """The subject, as participants.tsv has it."""
        return f"sub-{self.entities['sub']}"

    def named(self, **more: str) -> str:
        """Return a name with these entities and more of them, e.g. ``desc``, and the suffix."""
        together = self.entities | more
        return "_".join([*(f"{key}-{value}" for key, value in together.items()), self.suffix])

    @property
    def folder(self) -> Path:
        """The folder of the file within its dataset, e.g. sub-01/ses-2/anat."""
        session = self.entities.get("ses")
        parts = [self.participant, f"ses-{session}" if session else "", self.datatype]
        return Path(*filter(None, parts))


def find_bids(
    root: str | os.PathLike[str], suffix: str, entities: Mapping[str, str] | None = None
) -> list[BidsFile]:
    """Return the images of a dataset that have a suffix and some entities, in order of their paths.

    Parameters
    ----------
    root : path
        The folder with those of the subjects: a dataset, or derivatives of one.
    suffix : str
        E.g. "T1w".
    entities : dict of str, optional
        What else names must have, e.g. ``{"ses": "01"}``; ``""`` for an entity that must not be
        there. By default any.

    Raises
    ------
    ImageError
        If there are none.
    """
    root, wanted = Path(root), dict(entities or {})
    if not root.is_dir():
        raise ImageError(f"{root} is no folder: give the root of a BIDS dataset")
    subjects = sorted(path for path in root.iterdir() if _SUBJECT_FOLDER.fullmatch(path.name))
    if not any(path.is_dir() for path in subjects):
        raise ImageError(f"{root} has no folders sub-*: give the root of a BIDS dataset")
    every = [file for folder in subjects for file in _files_in(folder)]
    of_suffix = [file for file in every if file.suffix == suffix]
    if not of_suffix:
        known = sorted({file.suffix for file in every})
        raise ImageError(
            f"{root} has no images with suffix {suffix}: it has {', '.join(known) or 'none'}"
        )
    found = [
        file
        for file in of_suffix
        if all(file.entities.get(key, "") == value for key, value in wanted.items())
    ]
    if not found:
        words = [f"{key}-{value}" if value else f"no {key}" for key, value in wanted.items()]
        asked = ", ".join(words)
        shown = ", ".join(file.path.name for file in of_suffix[:_MOST_NAMED])
        more = len(of_suffix) - _MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        raise ImageError(f"no {suffix} image in {root} has {asked}: there are {shown}{rest}")
    return found


def _files_in(folder: Path) -> list[BidsFile]:
    """Return the images of a subject."""
    named = (parse_name(path) for path in sorted(folder.rglob("*")) if suffix_of(path))
    return [file for file in named if file is not None]


def parse_name(path: Path) -> BidsFile | None:
    """Return what the name of an image says; None if it is no name of BIDS, or has no subject."""
    stem = stem_of(path)
    if not _NAME.fullmatch(stem):
        return None
    *pairs, suffix = stem.split("_")
    entities = dict(pair.split("-", 1) for pair in pairs)
    if "sub" not in entities:
        return None
    parent = path.parent.name
    datatype = "" if "-" in parent else parent
    return BidsFile(path, {"sub": entities["sub"]} | entities, suffix, datatype)


def short_names(files: Sequence[BidsFile]) -> list[str]:
    """Return a name for every image: its subject, and what else tells it apart from others."""
    keys = dict.fromkeys(key for file in files for key in file.entities)
    differing = [
        key for key in keys if key == "sub" or len({file.entities.get(key) for file in files}) > 1
    ]
    names = [
        "_".join(f"{key}-{file.entities[key]}" for key in differing if key in file.entities)
        for file in files
    ]
    if len(set(names)) == len(names):
        return names
    repeated = next(name for name in names if names.count(name) > 1)
    paths = [str(file.path) for file, name in zip(files, names, strict=True) if name == repeated]
    raise ImageError(f"{paths[0]} and {paths[1]} have the same entities: leave one of them out")
