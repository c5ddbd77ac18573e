"""The exact form of every message to a site: names, types, lengths and ranges, and nothing else.

A message that has a key too many or too few, a wrong type (True is no number, 1.0 no integer) or a
number out of range is refused before anything is done about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.protocol.wire import Message

#: Raises a MessageError unless a value, described by a text, has the right form.
Form = Callable[[Any, str], None]

#: Steps are counted far below where floats, or anyone's patience, end.
MOST_STEPS = 2**40
#: Exponents of fixed-point ranges: far beyond sums of a fit, and 2^e is a float64.
LEAST_EXPONENT, MOST_EXPONENT = -400, 400
_MOST_SITES = 1000
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,100}")
_FIT = re.compile(r"[A-Za-z0-9]{1,64}")


def check_message(message: Message) -> None:
    """Raise a MessageError unless a message has the form of its task."""
    task = message.get("do")
    if not isinstance(task, str) or task not in MESSAGES:
        raise MessageError(f"'do' must be one of {', '.join(MESSAGES)}")
    record(MESSAGES[task])({key: message[key] for key in message if key != "do"}, task)


def text(pattern: re.Pattern[str] = _NAME) -> Form:
    """Return the form of a text that matches a pattern."""

    def check(value: Any, what: str) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise MessageError(f"{what} must be a text like {pattern.pattern}, got {_shown(value)}")

    return check


def whole(least: int, most: int) -> Form:
    """Return the form of an integer from least to most."""

    def check(value: Any, what: str) -> None:
        if type(value) is not int or not least <= value <= most:
            raise MessageError(f"{what} must be an integer, {least} to {most}, got {_shown(value)}")

    return check


def number(least: float, most: float) -> Form:
    """Return the form of a finite number from least to most."""

    def check(value: Any, what: str) -> None:
        if type(value) not in (int, float) or not least <= value <= most:
            raise MessageError(f"{what} must be a number, {least} to {most}, got {_shown(value)}")

    return check


def flag(value: Any, what: str) -> None:
    """Check that a value is true or false."""
    if type(value) is not bool:
        raise MessageError(f"{what} must be true or false, got {_shown(value)}")


def raw(least: int, most: int) -> Form:
    """Return the form of some bytes."""

    def check(value: Any, what: str) -> None:
        if type(value) is not bytes or not least <= len(value) <= most:
            raise MessageError(f"{what} must be {least} to {most} bytes")

    return check


def array(value: Any, what: str) -> None:
    """Check that a value is an array of numbers; its shape is for its reader to check."""
    if not isinstance(value, np.ndarray) or value.ndim > 16:
        raise MessageError(f"{what} must be an array")


def anything(value: Any, what: str) -> None:
    """Accept what its reader checks."""


def optional(form: Form) -> Form:
    """Return the form of a value that may be None."""
    return lambda value, what: None if value is None else form(value, what)


def list_of(form: Form, most: int = _MOST_SITES) -> Form:
    """Return the form of a list of values of one form."""

    def check(value: Any, what: str) -> None:
        if type(value) is not list or len(value) > most:
            raise MessageError(f"{what} must be a list of at most {most}")
        for item in value:
            form(item, f"an item of {what}")

    return check


def by_name(form: Form) -> Form:
    """Return the form of values of one form, by name."""
    name = text()

    def check(value: Any, what: str) -> None:
        if type(value) is not dict or len(value) > _MOST_SITES:
            raise MessageError(f"{what} must have names")
        for key, item in value.items():
            name(key, f"a name in {what}")
            form(item, f"{what} of {key}")

    return check


def record(forms: Mapping[str, Form]) -> Form:
    """Return the form of a record with exactly these entries."""

    def check(value: Any, what: str) -> None:
        if type(value) is not dict:
            raise MessageError(f"{what} must have {', '.join(forms) or 'nothing'}")
        for missing in forms.keys() - value.keys():
            raise MessageError(f"{what} has no {missing!r}")
        for unknown in value.keys() - forms.keys():
            raise MessageError(f"{what} takes no {_shown(unknown)}")
        for name, form in forms.items():
            form(value[name], f"{name} of {what}")

    return check


def _shown(value: Any) -> str:
    return " ".join(repr(value).split())[:80]


_signature = raw(1, 1024)
_key = raw(32, 32)
_step = whole(1, MOST_STEPS)
_index = whole(0, 2**31)
_decisions = list_of(flag)
_names = list_of(text())
_signed = {"signature": _signature}
_statements = by_name(_signature)
_checksums = by_name(
    record({"values": list_of(whole(0, 2**61), 2), **_signed}),
)
_holdings = by_name(
    record({"n_images": whole(1, 2**31), "exponent": whole(-1000, 1000), **_signed})
)
_fit = {"fit": text(_FIT)}
_step_of_fit = {**_fit, "step": _step}

#: What each task takes.
MESSAGES: dict[str, dict[str, Form]] = {
    "describe": {},
    "join": {
        **_fit,
        "settings": anything,
        "seed": whole(0, 2**64),
        "n_iter": whole(0, 10**6),
        "tol": optional(number(0, 1)),
        "holdings": _holdings,
    },
    "restore": {
        **_step_of_fit,
        "iteration": whole(0, 10**6),
        "roster": _names,
    },
    "sketch": {**_fit, "iteration": whole(1, 10**6), "nonce": _key},
    "adopt": {**_fit, "array": text(), "start": _index, "values": array},
    "adopted": {**_fit, "iteration": whole(1, 10**6), "facts": anything},
    "confirm": {
        **_step_of_fit,
        "roster": _names,
        "sketches": by_name(record({"values": array, "facts": anything, **_signed})),
    },
    "open": {**_step_of_fit, "summary": array, "roster": _names, "holdings": _holdings},
    "ask": {
        **_step_of_fit,
        "question": text(),
        "arguments": anything,
        "roster": _names,
        "is_masked": flag,
        "exponents": by_name(whole(LEAST_EXPONENT, MOST_EXPONENT)),
        "offers": by_name(record({"key": _key, "commitment": _key, **_signed})),
        "decisions": _decisions,
        "summary": optional(array),
        "checksums": optional(_checksums),
        "masked": by_name(array),
    },
    "block": {
        **_step_of_fit,
        "index": _index,
        "answers": by_name(record({"digest": _key, **_signed})),
        "verdicts": _statements,
    },
    "total": {**_step_of_fit, "index": _index, "block": array},
    "reveal": {**_step_of_fit, "totals": by_name(record({"number": _key, **_signed}))},
    "witness": {**_step_of_fit, "site": text(), "index": _index, "block": array},
    "settle": {**_step_of_fit, "checksums": _checksums, "masked": by_name(array)},
    "keep": {**_step_of_fit, "decisions": _decisions, "verdicts": _statements},
}
