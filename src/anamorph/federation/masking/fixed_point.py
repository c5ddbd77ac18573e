"""Sums as fixed-point numbers, which add up exactly modulo a prime.

    value x, |total| <= 2^e    ->    round(x 2^b) mod p,    b = 58 - e

The total over all sites stays below 2^59, a quarter of what residues can hold, so it never wraps
around. Masks are uniform modulo p, which is why sums are not masked as floating-point numbers.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.typing import Array, Float64Array
from anamorph.federation.masking.field import Residues, from_residues, to_residues

#: Bits of the largest total that is allowed.
_BITS = 58


def to_fixed_point(values: Array, exponent: int) -> Residues:
    """Return values (n,) as fixed-point numbers modulo p.

    Parameters
    ----------
    values : (n,)
        At most 2^exponent in magnitude. What is larger is cut off, and what is no number is 0: an
        error here would tell about the values of a single site.
    exponent : int
        e.

    Returns
    -------
    (n,) array of uint64
    """
    numbers, most = np.asarray(values, np.float64), 2.0 ** (exponent + 1)  # exponents may round
    if not np.all(np.abs(numbers) <= most):
        numbers = np.clip(np.where(np.isnan(numbers), 0.0, numbers), -most, most)
    scaled = np.rint(np.ldexp(numbers, _BITS - exponent))
    return to_residues(scaled.astype(np.int64))


def from_fixed_point(total: Residues, exponent: int) -> Float64Array:
    """Return the values (n,) that fixed-point numbers stand for."""
    values: Float64Array = np.ldexp(from_residues(total).astype(np.float64), exponent - _BITS)
    return values
