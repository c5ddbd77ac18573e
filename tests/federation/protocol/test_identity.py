"""Identities sign with any kind of key that a certificate may have, and notice other data."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from anamorph.federation import Identity, SignatureError
from anamorph.federation.protocol.certificates import (
    certificate_to_pem,
    fingerprint,
    issue,
    key_to_pem,
    new_authority,
)
from anamorph.federation.protocol.errors import CertificateError
from anamorph.federation.protocol.identity import new_identities


@pytest.mark.parametrize(
    "new_key",
    [
        lambda: rsa.generate_private_key(65537, 2048),
        lambda: ec.generate_private_key(ec.SECP256R1()),
    ],
)
def test_certificates_may_have_other_kinds_of_keys(new_key):
    key = new_key()
    identity = Identity("a", key, {"a": key.public_key()})
    identity.verify("a", b"text", identity.sign(b"text"))
    with pytest.raises(SignatureError):
        identity.verify("a", b"other text", identity.sign(b"text"))


def test_an_identity_is_read_from_a_key_and_certificates():
    key, authority = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    issued = issue(new_authority("trio", authority), authority, "a", key.public_key())
    pem = {"a": certificate_to_pem(issued).encode()}
    identity = Identity.from_pem("a", key_to_pem(key), pem)
    identity.verify("a", b"text", identity.sign(b"text"))


def test_a_roster_is_trusted_as_a_whole():
    a, *_ = new_identities(["a", "b", "c"])
    a.check_roster(["a", "b", "c"])
    with pytest.raises(CertificateError, match="d has no certificate here"):
        a.check_roster(["a", "b", "d"])


def test_sites_that_mean_other_keys_by_the_same_names_notice():
    a, b, _ = new_identities(["a", "b", "c"])
    other, *_ = new_identities(["a", "b", "c"])
    assert a.roster_digest(["a", "b"]) == b.roster_digest(["b", "a"])
    assert a.roster_digest(["a", "b"]) != a.roster_digest(["a", "b", "c"])
    assert a.roster_digest(["a", "b"]) != other.roster_digest(["a", "b"])


def test_a_fingerprint_is_read_over_the_telephone():
    key = rsa.generate_private_key(65537, 2048)
    text = fingerprint(key.public_key())
    assert [len(group) for group in text.split("-")] == [4] * 8
