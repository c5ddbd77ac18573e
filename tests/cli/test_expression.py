"""Sums of names that may contain hyphens."""

import pytest

from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.expression import parse_sum

NAMES = [
    "smiling-1",
    "neutral-1",
    "neutral-2",
    "a",
    "b",
    "a-b",
    "001",
    "two words",
    "x+y",
    "neutral-11",
]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a", [(1, "a")]),
        ("-a", [(-1, "a")]),
        ("  + a ", [(1, "a")]),
        (
            "smiling-1 - neutral-1 + neutral-2",
            [(1, "smiling-1"), (-1, "neutral-1"), (1, "neutral-2")],
        ),
        ("smiling-1-neutral-1+neutral-2", [(1, "smiling-1"), (-1, "neutral-1"), (1, "neutral-2")]),
        ("0.5*a - 2 * b", [(0.5, "a"), (-2, "b")]),
        (".5*a+1e-1*b", [(0.5, "a"), (0.1, "b")]),
        ("a-b", [(1, "a-b")]),
        ("a - b", [(1, "a"), (-1, "b")]),
        ("2*001", [(2, "001")]),
        ("001 - 3*001", [(1, "001"), (-3, "001")]),
        ("two words + x+y", [(1, "two words"), (1, "x+y")]),
        ("neutral-11", [(1, "neutral-11")]),
    ],
)
def test_sums_are_read(text, terms):
    assert parse_sum(text, NAMES) == terms


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends where a name should be"),
        ("a +", "ends where a name should be"),
        ("a b", r"\+ or - before 'b'"),
        ("a - 0.5*", "ends where a name should be"),
        ("neutral-12", "no image is called 'neutral-12': did you mean neutral-"),
        ("qqqq", "no image is called 'qqqq': images are .* more"),
        ("a * b", r"\+ or - before '\* b'"),
        ("a - - b", "no image is called '-'"),
    ],
)
def test_what_is_no_sum_is_explained(text, problem):
    with pytest.raises(CommandError, match=problem) as error:
        parse_sum(text, NAMES)
    assert "\n" not in str(error.value)
