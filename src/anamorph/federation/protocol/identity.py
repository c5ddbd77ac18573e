"""The identity of a site: its signing key, and the certificates that it checks others by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from anamorph.federation.protocol.certificates import fingerprint
from anamorph.federation.protocol.errors import CertificateError, SignatureError

PrivateKey = ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PublicKey = ed25519.Ed25519PublicKey | rsa.RSAPublicKey | ec.EllipticCurvePublicKey

_RSA_PADDING = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


class Identity:
    """The signing key of a site, and the public keys of the sites that it knows.

    Parameters
    ----------
    name : str
        Name of the site.
    private_key : PrivateKey
        Ed25519, RSA or elliptic curve.
    known : mapping of PublicKey
        Public keys of all sites that are trusted here, by name. It is looked up whenever a key is
        needed, so a mapping that reads files can take a key back. One that raises a
        CertificateError says why a name is not trusted.
    """

    def __init__(self, name: str, private_key: PrivateKey, known: Mapping[str, PublicKey]) -> None:
        self.name = name
        self._private_key = private_key
        self._known = known

    @classmethod
    def from_pem(cls, name: str, private_key: bytes, certificates: Mapping[str, bytes]) -> Identity:
        """Load an identity from PEM text.

        Parameters
        ----------
        name : str
            Name of the site.
        private_key : bytes
            Its key, without a password.
        certificates : dict of bytes
            Certificates of all sites, by name.

        Returns
        -------
        Identity
        """
        key = load_pem_private_key(private_key, password=None)
        if not isinstance(key, PrivateKey):
            raise SignatureError(f"the key of {name} must be Ed25519, RSA or elliptic curve")
        known: dict[str, PublicKey] = {}
        for site, certificate in certificates.items():
            public_key = load_pem_x509_certificate(certificate).public_key()
            if not isinstance(public_key, PublicKey):
                raise SignatureError(f"the key of {site} must be Ed25519, RSA or elliptic curve")
            known[site] = public_key
        return cls(name, key, known)

    def sign(self, data: bytes) -> bytes:
        """Return this site's signature of some data."""
        return self._private_key.sign(data, *_scheme_of(self._private_key))

    def verify(self, name: str, data: bytes, signature: bytes) -> None:
        """Raise a SignatureError unless the named site is known and signed the data."""
        key = self._trusted_key(name)
        try:
            key.verify(signature, data, *_scheme_of(key))
        except InvalidSignature:
            text = f"a key that claims to come from {name} is not signed by it"
            raise SignatureError(text) from None

    def check_roster(self, names: Iterable[str]) -> None:
        """Raise a CertificateError unless the key of every named site is trusted here.

        To be called with the roster of every question, before anything about it is computed.
        """
        for name in names:
            self._trusted_key(name)

    def roster_digest(self, names: Iterable[str]) -> str:
        """Return a digest of named sites and of the keys that are trusted for them here.

        Two sites that agree on it mean the same keys by the same names. SHA-256, in hexadecimal.
        """
        keys = [[name, fingerprint(self._trusted_key(name))] for name in sorted(set(names))]
        return hashlib.sha256(json.dumps(["anamorph roster", keys]).encode()).hexdigest()

    def _trusted_key(self, name: str) -> PublicKey:
        key = self._known.get(name)
        if key is None:
            raise CertificateError(f"{name} has no certificate here: its keys are not trusted")
        return key


def _scheme_of(key: PrivateKey | PublicKey) -> tuple[Any, ...]:
    """Return the padding and hash function with which a kind of key signs."""
    if isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        return ()
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return (_RSA_PADDING, SHA256())
    return (ec.ECDSA(SHA256()),)


def new_identities(names: Sequence[str]) -> list[Identity]:
    """Return fresh identities that know each other, for sites that share one process."""
    keys = {name: ed25519.Ed25519PrivateKey.generate() for name in names}
    known = {name: key.public_key() for name, key in keys.items()}
    return [Identity(name, key, known) for name, key in keys.items()]
