"""Checksums of masked answers, under a challenge that nobody could know before.

Every site commits to its masked answer m_i (a signed hash). When the total T is known, all random
numbers that the sites had committed to are revealed, and their hash seeds coefficients rho. Each
site signs c_i = <rho, m_i> mod p, and

    sum_i c_i = <rho, T>    mod p

holds for the true total; for another one it holds with probability 1 / p, and with two seeds
1 / p^2, about 2^-122. A site that colludes with the coordinator could sign whatever c_j makes a
forged total pass. Therefore witnesses, drawn by the same randomness, compare the masked answers of
others with their hashes and checksums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from anamorph.federation.masking.field import PRIME, Residues, uniform_residues
from anamorph.kernels.cpu.residues import inner_product

#: Checksums are taken under two independent sets of coefficients.
N_CHECKSUMS = 2


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of some parts, each with its length, so that none can pass for another."""
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def challenge_of(binding: bytes, total: bytes, numbers: Mapping[str, bytes]) -> bytes:
    """Return the challenge that follows from the sites' random numbers.

    Parameters
    ----------
    binding : bytes
        The question.
    total : bytes
        Digest of the total.
    numbers : dict of bytes
        The random number of every site, by name.
    """
    named = (part for name in sorted(numbers) for part in (name.encode(), numbers[name]))
    return digest_of(b"anamorph challenge", binding, total, *named)


class Checksums:
    """Checksums and a hash of a sequence of residues, which arrive block by block.

    Parameters
    ----------
    challenge : bytes
        Seeds the coefficients.
    """

    def __init__(self, challenge: bytes) -> None:
        self._challenge = challenge
        self._n_blocks, self._values = 0, [0] * N_CHECKSUMS

    def add(self, block: Residues) -> None:
        """Add the next block (n,)."""
        for number in range(N_CHECKSUMS):
            place = f"{number} {self._n_blocks}".encode()
            key = digest_of(b"anamorph coefficients", self._challenge, place)
            for part, coefficients in uniform_residues(key, len(block)):
                self._values[number] += int(inner_product(coefficients, block[part]))
        self._n_blocks += 1

    @property
    def values(self) -> tuple[int, ...]:
        """The checksums, each 0 <= c < p."""
        return tuple(value % PRIME for value in self._values)

    @classmethod
    def of(cls, challenge: bytes, blocks: Iterable[Residues]) -> tuple[int, ...]:
        """Return the checksums of some blocks."""
        checksums = cls(challenge)
        for block in blocks:
            checksums.add(block)
        return checksums.values


def added_up(checksums: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the sums of checksums modulo p."""
    return tuple(sum(values) % PRIME for values in zip(*checksums, strict=True))


def witnesses_of(challenge: bytes, roster: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Draw who checks whose masked answers.

    One site is drawn to check the answers of all others, and the next one on the roster to check
    that site's: nobody is witness to an answer of its own.

    Parameters
    ----------
    challenge : bytes
    roster : list of str
        In order.

    Returns
    -------
    dict
        Sites whose answers are checked, by name of the witness; empty for a single site.
    """
    if len(roster) < 2:
        return {}
    drawn = int.from_bytes(digest_of(b"anamorph witness", challenge), "little") % len(roster)
    first, second = roster[drawn], roster[(drawn + 1) % len(roster)]
    return {first: tuple(name for name in roster if name != first), second: (first,)}
