"""Pairwise masks: what site i < j adds, site j subtracts, and only totals can be read.

    site i sends    x_i + sum_{j > i} stream_ij - sum_{j < i} stream_ij    mod p

This is the pairwise masking of Bonawitz et al., "Practical Secure Aggregation for
Privacy-Preserving Machine Learning" (ACM CCS 2017), without their recovery of sites that drop out:
a question that loses a site is asked again with fresh keys. Two sites agree on a secret (X25519,
fresh for every question, signed by each) and expand it to a stream (HKDF, AES in counter mode).
Whoever lacks one of a site's secrets sees uniform numbers; in the total over all sites the streams
cancel exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from anamorph.federation.masking.field import (
    Residues,
    add_into,
    subtract_from,
    uniform_residues,
)
from anamorph.federation.protocol.errors import SignatureError


class MaskKey:
    """The private half of a site's key for one question. It is used once, and then gone.

    Attributes
    ----------
    public : bytes
        The other half, for the other sites.
    """

    def __init__(self) -> None:
        self._private: X25519PrivateKey | None = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, own: str, others: Mapping[str, bytes], binding: bytes) -> PairwiseMasks:
        """Agree on a secret with every other site, and forget the private key.

        Parameters
        ----------
        own : str
            Name of this site.
        others : dict of bytes
            Public keys of the other sites, by name.
        binding : bytes
            All that the masks are for: masks of sites that differ in it do not cancel.

        Returns
        -------
        PairwiseMasks
        """
        if self._private is None:
            raise SignatureError("the key of this question was used: a mask is made once")
        private, self._private = self._private, None
        try:
            secrets = [
                (private.exchange(X25519PublicKey.from_public_bytes(key)), own < name)
                for name, key in others.items()
            ]
        except ValueError:  # a point of low order, or a key of another length
            raise SignatureError("a key of another site is no key of X25519") from None
        return PairwiseMasks(secrets, binding)


class PairwiseMasks:
    """The masks of one site for its answer to one question.

    Parameters
    ----------
    secrets : list of (bytes, bool)
        Secret shared with each other site, and whether its stream is added here.
    binding : bytes
        All that the masks are for.
    """

    def __init__(self, secrets: list[tuple[bytes, bool]], binding: bytes) -> None:
        self._secrets, self._binding = secrets, binding
        self._n_masked = 0

    def mask(self, residues: Residues) -> None:
        """Add the masks of the next block to residues (n,), in place."""
        block, self._n_masked = self._n_masked, self._n_masked + 1
        info = b"anamorph secure sum" + block.to_bytes(8, "little") + self._binding
        for secret, is_added in self._secrets:
            key = HKDF(SHA256(), 32, salt=None, info=info).derive(secret)
            combine = add_into if is_added else subtract_from
            for part, stream in uniform_residues(key, len(residues)):
                combine(residues[part], stream)
