"""Identities sign with any kind of key that a certificate may have, and notice other data."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from anamorph.federation import Identity, SignatureError


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
