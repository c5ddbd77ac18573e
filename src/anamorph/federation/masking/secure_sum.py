"""Secure sum: every two sites add and subtract the same random numbers, so only totals are seen.

A sum becomes a fixed-point number of 64 bits; sites i < j agree on a key (X25519, fresh for every
question, signed by each), expand it to a stream (HKDF, AES in counter mode), and i adds it where
j subtracts it, modulo 2^64. What a site sends is uniform to anyone who lacks one of its keys; in
the total over all sites the masks cancel exactly.

    value x, |x| < 2^e    ->    round(x 2^b) + sum_{j > i} stream_ij - sum_{j < i} stream_ij
    b = 62 - e - ceil(log2 n_sites), so that the total is below 2^62
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from anamorph.federation.masking.identity import Identity
from anamorph.federation.protocol.errors import AnswerError, SignatureError, SumOverflowError

#: Bits of a total; one more is the sign.
_BITS = 62
_CHUNK = 2**16  # values that are masked while they are in the processor's cache


def fraction_bits(exponent: int, n_sites: int) -> int:
    """Return b: values below 2^exponent are multiples of 2^-b."""
    return _BITS - exponent - (n_sites - 1).bit_length()


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
        What the values are, for errors.

    Raises
    ------
    SumOverflowError
        If a value is too large: never clipped, never wrapped.
    """
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).all():
        raise AnswerError(f"{name} is not finite at this site: nothing is answered")
    scaled = np.rint(np.ldexp(numbers, fraction_bits(exponent, n_sites)))
    if numbers.size and np.abs(numbers).max() >= 2.0**exponent:
        raise SumOverflowError(f"{name} is not below 2^{exponent} at this site: agree on more")
    return scaled.astype(np.int64).view(np.uint64)


def from_fixed_point(total: NDArray[np.uint64], exponent: int, n_sites: int) -> NDArray[np.float64]:
    """Return what a total of fixed-point numbers (n,) stands for."""
    return np.ldexp(total.view(np.int64).astype(np.float64), -fraction_bits(exponent, n_sites))


class Occasion:
    """One use of keys: the answer of a site to one attempt at one question for one roster.

    Parameters
    ----------
    identity : Identity
    fit : str
    step, attempt : int
    """

    def __init__(self, identity: Identity, fit: str, step: int, attempt: int) -> None:
        self._identity = identity
        self._facts = (fit, step, attempt)
        self._private_key: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._public = self._private_key.public_key().public_bytes_raw()
        self._pairs: list[tuple[bytes, bool]] = []
        self._context = b""

    def offer(self) -> dict[str, bytes]:
        """Return the public key of this site, signed for this occasion."""
        signature = self._identity.sign(self._statement(self._identity.name, self._public))
        return {"key": self._public, "signature": signature}

    def agree(
        self, roster: Sequence[str], offers: Mapping[str, Mapping[str, bytes]], context: str
    ) -> None:
        """Agree on a secret with every other site of the roster, and forget the private key.

        Parameters
        ----------
        roster : list of str
        offers : dict
            What each site of the roster offers for this occasion, by name.
        context : str
            What is asked; sites that are told different things share no masks.
        """
        if self._private_key is None:
            raise SignatureError("the key of this question was used: ask with fresh keys")
        private_key, self._private_key = self._private_key, None
        own = self._identity.name
        public = {name: self._verified(name, offers) for name in roster if name != own}
        self._context = json.dumps([*self._facts, sorted(roster), context]).encode()
        self._pairs = [
            (private_key.exchange(X25519PublicKey.from_public_bytes(key)), own < name)
            for name, key in public.items()
        ]

    def mask(self, values: NDArray[np.uint64], block: int) -> None:
        """Add the masks of a block to fixed-point values (n,), in place."""
        if not self._pairs:
            raise SignatureError("no keys were agreed on: nothing can be masked")
        for secret, is_added in self._pairs:
            info = b"anamorph secure sum" + block.to_bytes(8, "little") + self._context
            key = HKDF(SHA256(), 32, salt=None, info=info).derive(secret)
            _add_stream(values, key, is_added)

    def _verified(self, name: str, offers: Mapping[str, Mapping[str, bytes]]) -> bytes:
        offer = offers.get(name)
        if offer is None:
            raise SignatureError(f"{name} is on the roster, and its key is missing")
        key, signature = offer["key"], offer["signature"]
        self._identity.verify(name, self._statement(name, key), signature)
        return key

    def _statement(self, name: str, key: bytes) -> bytes:
        return json.dumps(["anamorph key", *self._facts, name, key.hex()]).encode()


def _add_stream(values: NDArray[np.uint64], key: bytes, is_added: bool) -> None:
    """Add or subtract the stream of a key, used for nothing else, to values (n,)."""
    encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    zeros = bytes(8 * min(_CHUNK, len(values)))
    combine = np.add if is_added else np.subtract
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        stream = np.frombuffer(encryptor.update(zeros[: 8 * len(part)]), "<u8")
        combine(part, stream, out=part)
