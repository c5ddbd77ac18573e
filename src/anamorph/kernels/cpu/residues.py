"""Products modulo the prime p = 2^61 - 1, for checksums of masked sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anamorph.kernels.compile import kernel

_BITS = 61
PRIME = 2**_BITS - 1


@kernel
def inner_product(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> np.uint64:
    """Return sum_k a_k b_k modulo p, by products of 32-bit halves: 2^61 = 1 modulo p."""
    p, low = np.uint64(PRIME), np.uint64(2**32 - 1)
    low_29, bits_29, bits_32 = np.uint64(2**29 - 1), np.uint64(29), np.uint64(32)
    bits_61, eight = np.uint64(_BITS), np.uint64(8)
    total = np.uint64(0)
    for k in range(a.size):
        a_1, a_0 = a[k] >> bits_32, a[k] & low
        b_1, b_0 = b[k] >> bits_32, b[k] & low
        middle = a_1 * b_0 + a_0 * b_1  # times 2^32; below 2^62
        last = a_0 * b_0
        product = (
            eight * (a_1 * b_1)  # times 2^64
            + (middle >> bits_29)
            + ((middle & low_29) << bits_32)
            + (last >> bits_61)
            + (last & p)
        )
        total += (product >> bits_61) + (product & p)
        total = (total >> bits_61) + (total & p)
    return total
