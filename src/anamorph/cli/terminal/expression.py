"""Sums of names: "smiling-1 - neutral-1 + 0.5*neutral-2".

    sum   =  [sign] term {sign term}
    sign  =  "+" | "-"
    term  =  [number "*"] name

Names may contain any character, also hyphens: the longest known name at a place is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from anamorph.cli.terminal.errors import CommandError

_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*\*\s*")
_SIGN = re.compile(r"\s*([+-])\s*")
_WORD = re.compile(r"\S+")
_ENDS_A_NAME = re.compile(r"\s|[+-]|$")
_MOST_LISTED = 5


def parse_sum(text: str, names: Iterable[str]) -> list[tuple[float, str]]:
    """Return the terms of a sum, as factors and names.

    Parameters
    ----------
    text : str
        E.g. "smiling-1 - neutral-1 + neutral-2".
    names : strings
        All known names.

    Returns
    -------
    list of (float, str)
        E.g. ``[(1.0, "smiling-1"), (-1.0, "neutral-1"), (1.0, "neutral-2")]``.

    Raises
    ------
    CommandError
        If the text is not a sum of known names.
    """
    known = sorted(names, key=len, reverse=True)
    terms: list[tuple[float, str]] = []
    text = text.strip()
    position = 0
    while position < len(text) or not terms:
        sign, position = _read_sign(text, position, is_first=not terms)
        factor, position = _read_factor(text, position)
        name = _read_name(text, position, known)
        terms.append((sign * factor, name))
        position += len(name)
    return terms


def _read_sign(text: str, position: int, *, is_first: bool) -> tuple[float, int]:
    found = _SIGN.match(text, position)
    if found is not None:
        return (-1.0 if found.group(1) == "-" else 1.0), found.end()
    if is_first:
        return 1.0, position
    raise CommandError(
        f"there must be + or - before {text[position:].strip()!r} in {text!r}: write sums like "
        "'a - b + 0.5*c'"
    )


def _read_factor(text: str, position: int) -> tuple[float, int]:
    found = _FACTOR.match(text, position)
    if found is None:
        return 1.0, position
    return float(found.group().rstrip().rstrip("*")), found.end()


def _read_name(text: str, position: int, known: list[str]) -> str:
    for name in known:
        if text.startswith(name, position) and _ENDS_A_NAME.match(text, position + len(name)):
            return name
    word = _WORD.match(text, position)
    if word is None:
        raise CommandError(f"{text!r} ends where a name should be: write sums like 'a - b + c'")
    close = get_close_matches(word.group(), known, 1)
    hint = f"did you mean {close[0]}?" if close else f"images are {_list_some(known)}"
    raise CommandError(f"no image is called {word.group()!r}: {hint}")


def _list_some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown} and {len(names) - _MOST_LISTED} more"
