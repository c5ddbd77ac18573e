"""What people type as values: lists of numbers, numbers of latents, amounts of memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import typer

_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def numbers(flag: str, text: str) -> tuple[float, ...]:
    """Return numbers that are separated by commas or spaces.

    Parameters
    ----------
    flag : str
        Named by the error.
    text : str
        E.g. "0.002,0.02,2".

    Returns
    -------
    tuple of float
        At least one, all finite.
    """
    words = text.replace(",", " ").split()
    try:
        values = tuple(float(word) for word in words)
    except ValueError:
        values = ()
    if not values or not all(map(math.isfinite, values)):
        raise typer.BadParameter(f"{text!r} must be numbers, separated by commas", param_hint=flag)
    return values


def integers(flag: str, text: str) -> tuple[int, ...]:
    """Return whole numbers that are separated by commas or spaces."""
    values = numbers(flag, text)
    if not all(value.is_integer() for value in values):
        raise typer.BadParameter(f"{text!r} must be whole numbers", param_hint=flag)
    return tuple(int(value) for value in values)


def words(flag: str, text: str) -> tuple[str, ...]:
    """Return words that are separated by commas or spaces."""
    found = tuple(text.replace(",", " ").split())
    if not found:
        raise typer.BadParameter("must be words, separated by commas", param_hint=flag)
    return found


def components(flag: str, text: str) -> int | tuple[int, ...]:
    """Return a number of latents, or the two numbers for appearance and shape."""
    values = integers(flag, text)
    return values[0] if len(values) == 1 else values


def memory(flag: str, text: str) -> int:
    """Return bytes: "4GB" is 4e9 of them, "4GiB" is 4 * 2^30."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} must be like 500MB or 4GB", param_hint=flag)
    amount, unit, is_binary = found.groups()
    return int(float(amount) * (1024 if is_binary else 1000) ** _POWERS[unit.lower()])


#: What Typer reads itself, by what the help calls it; it passes on all else as a text.
KINDS: dict[str, type] = {"N": int, "NUMBER": float, "SHARE": float}
#: What reads the texts, by what the help calls them, without a number in front.
PARSERS: dict[str, Callable[[str, str], Any]] = {
    "NUMBERS": numbers,
    "K": components,
    "SIZE": memory,
}
