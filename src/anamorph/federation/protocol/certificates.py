"""Keys, signing requests and certificates of a consortium, and fingerprints that people compare.

Every party makes its own private key. A signing request carries the public key and the name to the
consortium's authority, which returns a certificate. People compare fingerprints of public keys, so
a certificate that is renewed for the same key needs no second look.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anamorph.federation.protocol.errors import CertificateError

#: Days for which certificates of parties, and the authority's own, are valid.
PARTY_DAYS, AUTHORITY_DAYS = 365, 3650

_KEY_BITS = 3072
_FINGERPRINT_DIGITS, _GROUP = 32, 4  # 128 bits: nobody can make a second key with the same one
_ALLOWANCE = timedelta(minutes=5)  # clocks of new members may be a little behind
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def new_key() -> rsa.RSAPrivateKey:
    """Return a new private key. It is RSA, since NVFLARE signs with nothing else."""
    return rsa.generate_private_key(65537, _KEY_BITS)


def key_to_pem(key: rsa.RSAPrivateKey) -> bytes:
    """Return a private key as PEM text without a password."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_from_pem(data: bytes, what: str = "the key") -> rsa.RSAPrivateKey:
    """Return the private key in PEM text, or raise a CertificateError that names it."""
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        raise CertificateError(f"{what} is not a private key in PEM without a password") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise CertificateError(f"{what} must be an RSA key, the only kind that NVFLARE can use")
    return key


def fingerprint(public_key: PublicKeyTypes) -> str:
    """Return the fingerprint of a public key: the first 128 bits of its SHA-256, in hexadecimal.

    Parameters
    ----------
    public_key : public key of any kind

    Returns
    -------
    str
        Eight groups of four digits, to be read over the telephone: "3f2a-91c0-...".
    """
    data = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return _grouped(hashlib.sha256(data).hexdigest()[:_FINGERPRINT_DIGITS])


def checked_fingerprint(text: str) -> str:
    """Return a fingerprint as somebody typed it, in the form of `fingerprint`.

    Raises
    ------
    CertificateError
        If it is not 32 hexadecimal digits. Spaces, hyphens, colons and case do not matter.
    """
    digits = re.sub(r"[\s:-]", "", text).lower()
    if not re.fullmatch(rf"[0-9a-f]{{{_FINGERPRINT_DIGITS}}}", digits):
        raise CertificateError(
            f"a fingerprint has {_FINGERPRINT_DIGITS} digits 0-9 and a-f, got {text!r}"
        )
    return _grouped(digits)


def _grouped(digits: str) -> str:
    return "-".join(digits[place : place + _GROUP] for place in range(0, len(digits), _GROUP))


# ---- signing requests


def new_request(name: str, key: rsa.RSAPrivateKey) -> bytes:
    """Return a signing request (PEM) for a name, signed by the key that it is for."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def read_request(data: bytes, what: str = "the request") -> tuple[str, rsa.RSAPublicKey]:
    """Return the name and the public key in a signing request (PEM).

    Raises
    ------
    CertificateError
        If it is not a request, or not signed by the key that it is for.
    """
    try:
        request = x509.load_pem_x509_csr(data)
        is_signed = request.is_signature_valid
    except (ValueError, InvalidSignature):
        raise CertificateError(
            f"{what} is not a signing request: 'anamorph site join' makes one"
        ) from None
    key, name = request.public_key(), _common_name(request.subject)
    if not is_signed or not isinstance(key, rsa.RSAPublicKey):
        raise CertificateError(f"{what} is not signed by an RSA key that it is for")
    if not _NAME.fullmatch(name):
        raise CertificateError(
            f"{what} is for {name!r}, but names have up to 63 letters, digits, '-' or '_'"
        )
    return name, key


# ---- certificates


def new_authority(name: str, key: rsa.RSAPrivateKey) -> x509.Certificate:
    """Return the certificate of a new authority, signed by itself."""
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(_subject(name), _subject(name), key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(constraints, critical=True)
    return builder.add_extension(_usage(is_authority=True), critical=True).sign(key, SHA256())


def issue(
    authority: x509.Certificate,
    key: rsa.RSAPrivateKey,
    name: str,
    public_key: rsa.RSAPublicKey,
    *,
    days: float = PARTY_DAYS,
    host: str | None = None,
    role: str | None = None,
) -> x509.Certificate:
    """Return a certificate for the public key of a party.

    Parameters
    ----------
    authority, key : x509.Certificate and rsa.RSAPrivateKey
        Of the authority that signs.
    name : str
        Name of the party.
    public_key : rsa.RSAPublicKey
        Its key. Its private key is not needed, and should be nowhere but with the party.
    days : float, default 365
        Days for which the certificate is valid, at most as long as the authority's.
    host : str, optional
        Host name or address of a server; the name by default.
    role : str, optional
        What an administrator may do; none by default.

    Returns
    -------
    x509.Certificate
    """
    latest = (authority.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)
    if latest <= 0:
        raise CertificateError("the authority's own certificate has expired: make a new consortium")
    builder = _builder(_subject(name, role), authority.subject, public_key, min(days, latest))
    # Both uses: a site's own processes show each other the same certificate at either end.
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host or name)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(key, SHA256())
    )


def certificate_to_pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM text."""
    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def certificate_from_pem(text: str | bytes, what: str = "the certificate") -> x509.Certificate:
    """Return the certificate in PEM text, or raise a CertificateError that names it."""
    data = text.encode() if isinstance(text, str) else text
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise CertificateError(f"{what} is not a certificate in PEM") from None


def name_on(certificate: x509.Certificate) -> str:
    """Return the name that a certificate was issued to."""
    return _common_name(certificate.subject)


def check_issued(
    certificate: x509.Certificate, authority: x509.Certificate, name: str, what: str | None = None
) -> None:
    """Raise a CertificateError unless an authority issued a certificate to a name."""
    what = what or f"the certificate of {name}"
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise CertificateError(f"{what} is not signed by the consortium's authority") from None
    if name_on(certificate) != name:
        raise CertificateError(f"{what} was issued to {name_on(certificate)}, not to {name}")


def check_valid_now(
    certificate: x509.Certificate, what: str, renewal: str = "anamorph site renew"
) -> None:
    """Raise a CertificateError if a certificate has expired, or is not valid yet.

    Parameters
    ----------
    certificate : x509.Certificate
    what : str
        What the error calls it.
    renewal : str, default "anamorph site renew"
        The command that its owner renews it with.
    """
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            f"{what} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: its owner renews it "
            f"with '{renewal}'"
        )
    if now < certificate.not_valid_before_utc:
        raise CertificateError(
            f"{what} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: "
            "check the clock of this computer"
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: rsa.RSAPublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _ALLOWANCE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str, role: str | None = None) -> x509.Name:
    # NVFLARE reads a party's organisation and role from these attributes.
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name[:64]))
    if role is not None:
        parts.append(x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role))
    return x509.Name(parts)


def _common_name(subject: x509.Name) -> str:
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
