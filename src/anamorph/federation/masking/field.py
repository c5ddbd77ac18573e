"""Arithmetic modulo the prime p = 2^61 - 1: fixed-point numbers, masks and checksums.

Sums are masked in a prime field, so that a random linear checksum of a vector catches every change
of it with probability 1 - 1/p. Modulo a power of two it would not: twice a number forgets its top
bit. Numbers are stored as residues 0 <= r < p in uint64; a residue above p / 2 stands for the
negative number r - p.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from anamorph.kernels.compile import kernel

Residues = NDArray[np.uint64]

PRIME_BITS = 61
PRIME = 2**PRIME_BITS - 1
_P = np.uint64(PRIME)
_CHUNK = 2**16  # numbers that are worked on while they are in the processor's cache


def to_residues(numbers: NDArray[np.int64]) -> Residues:
    """Return whole numbers, |x| < p / 2, modulo p."""
    residues: Residues = np.where(numbers < 0, numbers + np.int64(PRIME), numbers).view(np.uint64)
    return residues


def from_residues(residues: Residues) -> NDArray[np.int64]:
    """Return the whole numbers, |x| < p / 2, that residues stand for."""
    numbers = residues.view(np.int64)
    centred: NDArray[np.int64] = np.where(numbers > PRIME // 2, numbers - np.int64(PRIME), numbers)
    return centred


def add_into(total: Residues, residues: Residues) -> None:
    """Add residues to a total, in place."""
    total += residues  # below 2^62
    np.subtract(total, _P, out=total, where=total >= _P)


def subtract_from(total: Residues, residues: Residues) -> None:
    """Subtract residues from a total, in place."""
    add_into(total, _P - residues)  # p - 0 is reduced to 0 by the addition


def uniform_residues(key: bytes, length: int) -> Iterator[tuple[slice, Residues]]:
    """Yield independent uniform residues, a chunk at a time, expanded from a key.

    The key must be used for nothing else: AES-256 in counter mode from zero. The one 61-bit word
    that is no residue is drawn again, so that all residues are equally probable.

    Parameters
    ----------
    key : bytes
        32 of them.
    length : int

    Yields
    ------
    part : slice
        Which of the residues.
    residues : (n,)
    """
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    for start in range(0, length, _CHUNK):
        part = slice(start, min(start + _CHUNK, length))
        yield part, _drawn(stream, part.stop - part.start)


def _drawn(stream: CipherContext, n: int) -> Residues:
    words = np.frombuffer(stream.update(bytes(8 * n)), "<u8") & _P
    is_outside = words == _P
    if is_outside.any():
        words[is_outside] = _drawn(stream, int(is_outside.sum()))
    return words


@kernel
def inner_product(a: Residues, b: Residues) -> np.uint64:
    """Return sum_k a_k b_k modulo p, by products of 32-bit halves: 2^61 = 1 modulo p."""
    p, low = np.uint64(PRIME), np.uint64(2**32 - 1)
    low_29, bits_29, bits_32 = np.uint64(2**29 - 1), np.uint64(29), np.uint64(32)
    bits_61, eight = np.uint64(PRIME_BITS), np.uint64(8)
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
