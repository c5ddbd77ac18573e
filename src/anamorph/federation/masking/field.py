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

from anamorph.kernels.cpu.residues import PRIME as PRIME

Residues = NDArray[np.uint64]

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
