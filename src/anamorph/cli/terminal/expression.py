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

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SIGN_AND_FACTOR = re.compile(rf"\s*([+-]?)\s*(?:({_NUMBER})\s*\*\s*)?")
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
        found = _SIGN_AND_FACTOR.match(text, position)
        assert found is not None  # both may be absent
        sign, factor = found.groups()
        if terms and not sign:
            raise CommandError(
                f"there must be + or - before {text[position:].strip()!r} in {text!r}: write sums "
                "like 'a - b + 0.5*c'"
            )
        name = _read_name(text, found.end(), known)
        terms.append(((-1.0 if sign == "-" else 1.0) * float(factor or 1), name))
        position = found.end() + len(name)
    return terms


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
