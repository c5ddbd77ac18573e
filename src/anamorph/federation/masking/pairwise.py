"""Pairwise masks: what site i < j adds, site j subtracts, and only totals can be read.

    site i sends    x_i + sum_{j > i} stream_ij - sum_{j < i} stream_ij    mod 2^64

This is the pairwise masking of Bonawitz et al., "Practical Secure Aggregation for
Privacy-Preserving Machine Learning" (ACM CCS 2017), without their recovery of sites that drop out:
a question that loses a site is asked again with fresh keys. Two sites agree on a secret (X25519,
fresh for every attempt, signed by each) and expand it to a stream (HKDF, AES in counter mode).
Whoever lacks one of a site's secrets sees uniform numbers; in the total over all sites the streams
cancel exactly.
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

from anamorph.federation.protocol.errors import SignatureError
from anamorph.federation.protocol.identity import Identity

_CHUNK = 2**16  # values that are masked while they are in the processor's cache


class PairwiseMasks:
    """The masks of one site for one attempt at one question. They are used once.

    Parameters
    ----------
    identity : Identity
        Of the site.
    fit : str
        Name of the fit.
    step, attempt : int
        Number of the question, and of the attempt at it.

    Attributes
    ----------
    binding : tuple
        The fit, the step and the attempt that the masks are for.
    """

    def __init__(self, identity: Identity, fit: str, step: int, attempt: int) -> None:
        self._identity = identity
        self.binding = (fit, step, attempt)
        self._private_key: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._public = self._private_key.public_key().public_bytes_raw()
        self._secrets: list[tuple[bytes, bool]] = []
        self._context = b""

    def offer(self) -> dict[str, bytes]:
        """Return the public key of this site, signed for this attempt."""
        signature = self._identity.sign(self._statement(self._identity.name, self._public))
        return {"key": self._public, "signature": signature}

    def agree(
        self, roster: Sequence[str], offers: Mapping[str, Mapping[str, bytes]], context: str
    ) -> None:
        """Agree on a secret with every other site of the roster, and forget the private key.

        Parameters
        ----------
        roster : list of str
            Names of all sites that answer.
        offers : dict
            What each site offered for this attempt, by name.
        context : str
            What is asked. Masks of sites that received different questions do not cancel.
        """
        if self._private_key is None:
            raise SignatureError("the key of this question was used: ask with fresh keys")
        private_key, self._private_key = self._private_key, None
        own = self._identity.name
        public = {name: self._verified_key(name, offers) for name in roster if name != own}
        self._context = json.dumps([*self.binding, sorted(roster), context]).encode()
        self._secrets = [
            (private_key.exchange(X25519PublicKey.from_public_bytes(key)), own < name)
            for name, key in public.items()
        ]

    def mask(self, values: NDArray[np.uint64], block: int) -> None:
        """Add the masks of a block to fixed-point values (n,), in place."""
        if not self._secrets:
            raise SignatureError("no keys were agreed on: nothing can be masked")
        for secret, is_added in self._secrets:
            info = b"anamorph secure sum" + block.to_bytes(8, "little") + self._context
            key = HKDF(SHA256(), 32, salt=None, info=info).derive(secret)
            _add_stream(values, key, is_added)

    def _verified_key(self, name: str, offers: Mapping[str, Mapping[str, bytes]]) -> bytes:
        offer = offers.get(name)
        if offer is None:
            raise SignatureError(f"{name} is on the roster, but its key is missing")
        key, signature = offer["key"], offer["signature"]
        self._identity.verify(name, self._statement(name, key), signature)
        return key

    def _statement(self, name: str, key: bytes) -> bytes:
        return json.dumps(["anamorph key", *self.binding, name, key.hex()]).encode()


def _add_stream(values: NDArray[np.uint64], key: bytes, is_added: bool) -> None:
    """Add or subtract the stream of a key to values (n,). A key is used for one stream only."""
    # A counter that starts at zero is safe because no key is used twice.
    encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    zeros = bytes(8 * min(_CHUNK, len(values)))
    combine = np.add if is_added else np.subtract
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        stream = np.frombuffer(encryptor.update(zeros[: 8 * len(part)]), "<u8")
        combine(part, stream, out=part)
