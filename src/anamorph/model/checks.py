"""Checks of arguments: each returns the value, or raises an error that says what is accepted.

Nothing here imports NumPy: the command line needs the table of hyperparameters to show its help,
and the table needs these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

_LARGEST_SEED = 2**31 - 1


class ArgumentError(ValueError):
    """An argument has a value that is not accepted; the message says which are."""


@contextmanager
def argument_errors() -> Iterator[None]:
    """Turn a ValueError of a check that other floors make into an `ArgumentError`."""
    try:
        yield
    except ValueError as error:
        raise ArgumentError(str(error)) from error


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return a value that is one of some words."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {choices}, got {value!r}")
    return value


def check_integer(name: str, value: Any, lowest: int, highest: int | None = None) -> int:
    """Return an integer that is at least the lowest and at most the highest."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not lowest <= int(value) <= (inf if highest is None else highest):
        accepted = f">= {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ArgumentError(f"{name} must be an integer {accepted}, got {value!r}")
    return int(value)


def check_number(name: str, value: Any, *, is_positive: bool = False) -> float:
    """Return a finite number that is not negative, or not even zero."""
    if not _is_number(value) or (is_positive and value == 0):
        accepted = "a positive number" if is_positive else "a number >= 0"
        raise ArgumentError(f"{name} must be {accepted}, got {value!r}")
    return float(value)


def check_weight(name: str, value: Any) -> float:
    """Return a positive number, where the word "auto" would be accepted too."""
    try:
        return check_number(name, value, is_positive=True)
    except ArgumentError as error:
        raise ArgumentError(f"{error}".replace(", got", " or 'auto', got", 1)) from None


def check_count(name: str, value: Any, lowest: int) -> int:
    """Return an integer that is at least the lowest, where "auto" would be accepted too."""
    try:
        return check_integer(name, value, lowest)
    except ArgumentError as error:
        raise ArgumentError(f"{error}".replace(", got", " or 'auto', got", 1)) from None


def checked_components(n_components: Any) -> int | tuple[int, int]:
    """Return the number of latents, or the numbers for appearance and shape."""
    if not isinstance(n_components, tuple | list):
        return check_integer("n_components", n_components, 1)
    if len(n_components) != 2:
        raise ArgumentError(f"n_components must be an integer or a pair, got {n_components!r}")
    n_appearance, n_shape = (check_integer("n_components", number, 1) for number in n_components)
    return n_appearance, n_shape


def checked_balance(balance: Any) -> tuple[float, float]:
    """Return lambda_1 > 0 and lambda_2 >= 0."""
    try:
        first, second = balance
    except (TypeError, ValueError):
        first = second = None
    if not (_is_number(first) and _is_number(second) and first > 0):
        raise ArgumentError(f"balance must be two numbers, > 0 and >= 0, got {balance!r}")
    return float(first), float(second)


def checked_seed(random_state: Any) -> int:
    """Return the seed of the starting latents; None means 0.

    A RandomState or a Generator of NumPy draws it, as scikit-learn has it: the next one differs.
    """
    if random_state is None:
        return 0
    for name in ("integers", "randint"):  # of a Generator, and of a RandomState
        if _draws_numbers(random_state) and hasattr(random_state, name):
            return int(getattr(random_state, name)(_LARGEST_SEED))
    return check_integer("random_state", random_state, 0)


def _draws_numbers(value: Any) -> bool:
    """Tell whether a value is a source of random numbers of NumPy, which is not imported here."""
    return type(value).__module__.startswith("numpy.random")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < inf


class Accepted(NamedTuple):
    """Which values an argument accepts.

    Attributes
    ----------
    words : str
        E.g. "an integer >= 1".
    check : callable
        Takes the name of the argument and a value; returns the value as plain Python, or raises
        a ValueError.
    """

    words: str
    check: Callable[[str, Any], Any]


def integers(lowest: int) -> Accepted:
    """Accept integers that are not below the lowest."""
    return Accepted(
        f"an integer >= {lowest}", lambda name, value: check_integer(name, value, lowest)
    )


def numbers(words: str, *, is_positive: bool = False) -> Accepted:
    """Accept finite numbers that are not negative, or not even zero."""
    return Accepted(words, partial(check_number, is_positive=is_positive))


def choices(find: Callable[[], tuple[str, ...]]) -> Accepted:
    """Accept some words, which are looked up when there is a value to check."""
    return Accepted("one of these words", lambda name, value: check_choice(name, value, find()))


def _check_seed(name: str, value: Any) -> Any:
    if _draws_numbers(value):
        return value
    try:
        return check_integer(name, value, 0)
    except ArgumentError as error:
        words = ">= 0, a RandomState or a Generator"
        raise ArgumentError(str(error).replace(">= 0", words)) from None


def _check_threads(name: str, value: Any) -> int:
    if value == -1 and not isinstance(value, bool):
        return -1
    try:
        return check_integer(name, value, 1)
    except ArgumentError as error:
        raise ArgumentError(str(error).replace(">= 1", ">= 1, or -1 for all")) from None


SEEDS = Accepted("an integer >= 0, a RandomState or a Generator", _check_seed)
THREADS = Accepted("an integer >= 1, or -1 for all", _check_threads)


def unchecked(words: str) -> Accepted:
    """Accept any value for now, because only the images tell which are right."""
    return Accepted(words, lambda _, value: value)
