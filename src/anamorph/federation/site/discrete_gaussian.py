"""Random integers with a discrete Gaussian distribution, exactly, from the system's randomness.

Noise in floating point tells by its last digits what it was added to. Integers do not: answers are
rounded to a grid first, and noise is a whole number of its steps. Algorithms 1 to 3 of Canonne,
Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), which use nothing but
whole numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from math import isqrt

RandomBelow = Callable[[int], int]


def discrete_gaussian(variance: int, random_below: RandomBelow = secrets.randbelow) -> int:
    """Return a random integer n with probability proportional to exp(-n^2 / (2 variance)).

    Parameters
    ----------
    variance : int
        Positive.
    random_below : callable, default `secrets.randbelow`
        Returns a uniformly random integer from 0 to its argument less one.

    Returns
    -------
    int
    """
    scale = isqrt(variance) + 1
    while True:
        proposal = _discrete_laplace(scale, random_below)
        excess = abs(proposal) * scale - variance
        if _happens(excess * excess, 2 * variance * scale * scale, random_below):
            return proposal


def _discrete_laplace(scale: int, random_below: RandomBelow) -> int:
    """Return a random integer n with probability proportional to exp(-|n| / scale)."""
    while True:
        rest = random_below(scale)
        if not _happens(rest, scale, random_below):
            continue
        multiple = 0
        while _happens(1, 1, random_below):
            multiple += 1
        magnitude, is_negative = rest + scale * multiple, random_below(2)
        if magnitude or not is_negative:
            return -magnitude if is_negative else magnitude


def _happens(numerator: int, denominator: int, random_below: RandomBelow) -> bool:
    """Return True with probability exp(-numerator / denominator)."""
    while numerator > denominator:
        if not _happens_at_most_once(1, 1, random_below):
            return False
        numerator -= denominator
    return _happens_at_most_once(numerator, denominator, random_below)


def _happens_at_most_once(numerator: int, denominator: int, random_below: RandomBelow) -> bool:
    """Return True with probability exp(-numerator / denominator), for a share of at most 1."""
    n_times = 1
    while random_below(denominator * n_times) < numerator:
        n_times += 1
    return n_times % 2 == 1
