"""Sums as fixed-point numbers of 64 bits, which add up exactly modulo 2^64.

    value x, |x| < 2^e    ->    round(x 2^b) mod 2^64,    b = 62 - e - ceil(log2 n_sites)

With this b the total over all sites is below 2^62, so it never wraps around. Masks are uniform
modulo 2^64, which is why sums are not masked as floating-point numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.protocol.answers import largest_magnitude
from anamorph.federation.protocol.errors import AnswerError, SumOverflowError

#: Bits of a total; one more is the sign.
_BITS = 62


def fraction_bits(exponent: int, n_sites: int) -> int:
    """Return b: values below 2^exponent become multiples of 2^-b."""
    return _BITS - exponent - (n_sites - 1).bit_length()


def check_range(name: str, largest: float, exponent: int) -> None:
    """Raise an error unless all values of a field fit into the range that was agreed on.

    Parameters
    ----------
    name : str
        Name of the field, for errors.
    largest : float
        Its largest absolute value.
    exponent : int
        Values must be below 2^exponent. They are never clipped and never wrap around.

    Raises
    ------
    AnswerError
        If a value is not finite.
    SumOverflowError
        If a value is too large.
    """
    if not np.isfinite(largest):
        raise AnswerError(f"{name} is not finite at this site: it sends no answer")
    if largest >= 2.0**exponent:
        raise SumOverflowError(f"{name} is not below 2^{exponent} at this site: agree on more")


def to_fixed_point(
    values: NDArray[np.floating], exponent: int, n_sites: int, name: str
) -> NDArray[np.uint64]:
    """Return values (n,) as fixed-point numbers modulo 2^64.

    Parameters
    ----------
    values : (n,)
    exponent : int
        Values must be below 2^exponent.
    n_sites : int
        How many such numbers will be added.
    name : str
        Name of the values, for errors.

    Returns
    -------
    (n,) array of uint64
    """
    check_range(name, largest_magnitude(values), exponent)
    scaled = np.rint(np.ldexp(np.asarray(values, np.float64), fraction_bits(exponent, n_sites)))
    return scaled.astype(np.int64).view(np.uint64)


def from_fixed_point(total: NDArray[np.uint64], exponent: int, n_sites: int) -> NDArray[np.float64]:
    """Return the values that a total of fixed-point numbers (n,) stands for."""
    return np.ldexp(total.view(np.int64).astype(np.float64), -fraction_bits(exponent, n_sites))
