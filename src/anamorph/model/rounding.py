"""Rounding: by how much a log-probability may fall without having become worse."""

from __future__ import annotations

from typing import TypeVar

from anamorph.arrays.typing import Float64Array

Number = TypeVar("Number", float, Float64Array)

# Fields are float32: a log-likelihood is known only up to this share of itself.
_ROUNDING = 2e-7


def slack(value: Number) -> Number:
    """Return by how much a quantity may fall for no other reason than rounding."""
    return _ROUNDING * abs(value)
