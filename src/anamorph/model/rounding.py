"""Rounding: by how much a log-probability may fall without having become worse."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])

# Fields are float32, so that a log-likelihood is only known to so much of itself.
_ROUNDING = 2e-7


def slack(value: Number) -> Number:
    """Return by how much a quantity may fall for no other reason than rounding."""
    return _ROUNDING * abs(value)
