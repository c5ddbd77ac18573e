"""The members file: who belongs to a consortium and who no longer does, signed by its authority.

One file for everybody, with no secret in it: the address of the coordinator, the certificates of
the authority and of all sites, and the keys that were revoked. Every change makes a new issue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from anamorph.federation.protocol.certificates import (
    certificate_from_pem,
    check_issued,
    check_valid_now,
    fingerprint,
)
from anamorph.federation.protocol.errors import CertificateError, ConsortiumError
from anamorph.storage.replace import replacing

#: Name of the file, in the folder of the authority and in every kit.
MEMBERS = "members.json"

_VERSION = 1
_PADDING = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class Members:
    """The members of a consortium.

    Attributes
    ----------
    consortium, host, port : str, str and int
        Name of the consortium, and the address of its coordinator.
    issue : int
        Number of this issue of the file; the newest counts.
    issued : str
        When it was issued, UTC.
    authority : str
        Certificate of the authority (PEM).
    sites : dict of str
        Certificates of the sites (PEM), by name.
    revoked : dict of str, default empty
        Fingerprints of keys that are no longer trusted, with the name and the date.
    """

    consortium: str
    host: str
    port: int
    issue: int
    issued: str
    authority: str
    sites: Mapping[str, str]
    revoked: Mapping[str, str] = field(default_factory=dict)

    @property
    def authority_certificate(self) -> x509.Certificate:
        """Certificate of the authority."""
        return certificate_from_pem(self.authority, "the authority's certificate")

    def certificate(self, site: str) -> x509.Certificate:
        """Return the certificate of a site, or raise a CertificateError if it is no member."""
        if site not in self.sites:
            ended = [since for since in self.revoked.values() if since.split(",")[0] == site]
            reason = f"was revoked ({ended[-1]})" if ended else "is not a site of this consortium"
            raise CertificateError(f"{site} {reason}: its keys are not trusted")
        return certificate_from_pem(self.sites[site], f"the certificate of {site}")

    def valid_certificate(self, site: str) -> x509.Certificate:
        """Return the certificate of a site, or raise a CertificateError if it is not valid now."""
        certificate = self.certificate(site)
        check_issued(certificate, self.authority_certificate, site)
        check_valid_now(certificate, f"the certificate of {site}")
        print_ = fingerprint(certificate.public_key())
        if print_ in self.revoked:
            raise CertificateError(f"the key of {site} was revoked: {self.revoked[print_]}")
        return certificate

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of every site's key, by name."""
        return {site: fingerprint(self.certificate(site).public_key()) for site in self.sites}


def new_issue(members: Members, **changes: Any) -> Members:
    """Return the next issue of a members file, with some changes."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = asdict(members) | {"issue": members.issue + 1, "issued": now} | changes
    return Members(**facts)


def write_members(path: Path, members: Members, key: rsa.RSAPrivateKey) -> None:
    """Sign the members with the authority's key, and write the file completely or not at all."""
    facts = asdict(members)
    signature = key.sign(_statement(facts), _PADDING, SHA256()).hex()
    with replacing(path) as temporary:
        text = json.dumps(facts | {"version": _VERSION, "signature": signature}, indent=2)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_members(path: Path) -> Members:
    """Read a members file, and check its signature and every certificate in it.

    Raises
    ------
    ConsortiumError
        If it is not a members file.
    CertificateError
        If the authority that it names has not signed it, or one of the certificates.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version, signature = facts.pop("version"), bytes.fromhex(facts.pop("signature"))
        members = Members(**facts)
    except FileNotFoundError:
        raise ConsortiumError(f"{path} does not exist: give the consortium's {MEMBERS}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConsortiumError(f"{path} is not a members file of a consortium") from None
    if version != _VERSION:
        raise ConsortiumError(f"{path} is of another version of anamorph: install the same one")
    authority = members.authority_certificate
    public_key = authority.public_key()
    if not isinstance(public_key, rsa.RSAPublicKey):
        raise CertificateError(f"{path}: the authority must have an RSA key")
    try:
        public_key.verify(signature, _statement(facts), _PADDING, SHA256())
    except InvalidSignature:
        raise CertificateError(
            f"{path} was changed after the authority signed it: ask for it again"
        ) from None
    for site in members.sites:
        check_issued(members.certificate(site), authority, site)
    return members


def _statement(facts: Mapping[str, Any]) -> bytes:
    """Return what the authority signs."""
    return json.dumps(["anamorph members", facts], sort_keys=True).encode()
