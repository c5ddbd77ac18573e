"""Becoming and staying a member: who is trusted is what people at the site have accepted."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("nvflare")

from anamorph.federation import ConsortiumError, Identity
from anamorph.federation.nvflare import accepted
from anamorph.federation.nvflare.consortium import Consortium
from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.members import MEMBERS, new_issue, read_members, write_members
from anamorph.federation.nvflare.membership import join, renew, update
from anamorph.federation.nvflare.provision import (
    AUTHORITY,
    provision,
    renew_coordinator,
    revoke,
    sign_requests,
)
from anamorph.federation.nvflare.site_data import open_identity
from anamorph.federation.protocol import certificates
from anamorph.federation.protocol.certificates import (
    certificate_to_pem,
    checked_fingerprint,
    fingerprint,
    issue,
    key_from_pem,
    new_key,
    new_request,
)
from anamorph.federation.protocol.errors import CertificateError
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.site.round import Offer, check_offer
from examples.federation.rehearsal import rehearse

TRIO = Consortium("trio", "localhost", 8002, ("london", "paris", "rome"))


@pytest.fixture(autouse=True)
def _small_keys(monkeypatch):
    """Keys that are made fast."""
    monkeypatch.setattr(certificates, "_KEY_BITS", 2048)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A consortium of three sites that have accepted each other; tests work on copies."""
    folder = tmp_path_factory.mktemp("membership") / "kits"
    rehearse(TRIO, folder)
    return folder


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "kits")


def kit_of(place, name):
    return open_kit(place / name, as_site=True)


def identity_of(place, name):
    return open_identity(kit_of(place, name))


def authority_of(place):
    path = place / "consortium" / AUTHORITY / "authority.key"
    return read_members(place / "consortium" / MEMBERS), key_from_pem(path.read_bytes())


def forge(place, site, key):
    """Issue a members file in which the authority has put another key under a name."""
    members, authority = authority_of(place)
    forged = issue(members.authority_certificate, authority, site, key.public_key())
    sites = dict(members.sites) | {site: certificate_to_pem(forged)}
    write_members(place / "forged.json", new_issue(members, sites=sites), authority)
    return place / "forged.json"


def audit_of(place, name):
    return list(AuditLog(place / name / "work" / "audit.jsonl").read())


# ---- trust


def test_sites_that_accepted_each_other_verify_each_other(place):
    identities = {name: identity_of(place, name) for name in TRIO.sites}
    for name, identity in identities.items():
        identity.check_roster(TRIO.sites)
        for other in identities.values():
            other.verify(name, b"text", identity.sign(b"text"))
    digests = {identity.roster_digest(TRIO.sites) for identity in identities.values()}
    assert len(digests) == 1


def test_a_site_that_is_not_accepted_is_not_trusted(place):
    accepted.withdraw(place / "london", "paris")
    identity = identity_of(place, "london")
    with pytest.raises(CertificateError, match="paris is not accepted at london"):
        identity.check_roster(TRIO.sites)
    with pytest.raises(CertificateError, match="paris is not accepted at london"):
        identity.verify("paris", b"text", identity_of(place, "paris").sign(b"text"))
    # Elsewhere, and for others, nothing has changed.
    identity_of(place, "rome").check_roster(TRIO.sites)
    identity.check_roster(["london", "rome"])


def test_trust_ends_while_a_site_runs(place):
    identity = identity_of(place, "london")
    identity.check_roster(TRIO.sites)
    accepted.withdraw(place / "london", "paris")
    with pytest.raises(CertificateError, match="not accepted"):
        identity.check_roster(TRIO.sites)


def test_a_made_up_site_is_not_trusted(place):
    """The authority adds a site of its own: the cheapest attack of a coordinator."""
    join(place / "eve", "eve")
    sign_requests(place / "consortium", [place / "eve" / "eve.csr"], may_add=True)
    changes = update(place / "london", place / "consortium" / MEMBERS)
    assert any(line.startswith("eve is not accepted yet") for line in changes)
    with pytest.raises(CertificateError, match="eve is not accepted at london"):
        identity_of(place, "london").check_roster([*TRIO.sites, "eve"])


def test_the_authority_cannot_sign_as_a_site(place):
    """Finding 3: whoever provisions makes a certificate for the name of a member."""
    stolen = new_key()
    changes = update(place / "london", forge(place, "paris", stolen))
    assert any("paris is shown with another key" in line for line in changes)
    london = identity_of(place, "london")
    false = Offer(Identity("paris", stolen, {}), "fit", 3)
    honest = Offer(identity_of(place, "rome"), "fit", 3)
    check_offer(london, "rome", "fit", 3, honest.message)
    with pytest.raises(CertificateError, match=r"another key .* than the one accepted at london"):
        check_offer(london, "paris", "fit", 3, false.message)


def test_a_site_notices_that_somebody_else_was_signed_under_its_name(place):
    with pytest.raises(CertificateError, match="somebody else was signed as paris"):
        update(place / "paris", forge(place, "paris", new_key()))
    (line,) = [line for line in audit_of(place, "paris") if line["event"] == "refused"]
    assert "somebody else was signed as paris" in line["text"]
    identity_of(place, "paris").check_roster(TRIO.sites)  # the kit is as it was


def test_a_fingerprint_is_typed_as_people_do(place):
    text = "3f2a-91c0-77de-0b12-a4c9-5e10-c3b8-22f7"
    assert checked_fingerprint(text.upper().replace("-", " ")) == text
    assert checked_fingerprint(text.replace("-", ":")) == text
    for wrong in (text[:-1], "g" + text[1:], ""):
        with pytest.raises(CertificateError, match="32 digits"):
            checked_fingerprint(wrong)


def test_a_fingerprint_that_is_not_the_members_is_refused(place):
    accepted.withdraw(place / "london", "paris")
    wrong = fingerprint(new_key().public_key())
    with pytest.raises(CertificateError, match=f"not {wrong}"):
        accepted.accept(place / "london", "paris", wrong)


def test_a_fingerprint_may_be_accepted_before_the_certificate_arrives(place, tmp_path):
    madrid = join(tmp_path / "madrid", "madrid")
    for name in TRIO.sites:
        accepted.accept(place / name, "madrid", madrid.fingerprint)
    sign_requests(place / "consortium", [madrid.path], may_add=True)
    for name in TRIO.sites:
        changes = update(place / name, place / "consortium" / MEMBERS)
        assert changes == ["nothing that needs doing here"]
        identity_of(place, name).check_roster([*TRIO.sites, "madrid"])
    assert open_kit(place / "consortium" / "coordinator", as_site=False).sites == (
        "london", "madrid", "paris", "rome",
    )  # fmt: skip


# ---- joining


def test_a_kit_is_not_finished_before_its_certificate_comes(tmp_path):
    request = join(tmp_path / "london", "london")
    assert (tmp_path / "london" / "startup" / "client.key").stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in request.path.read_text()
    with pytest.raises(ConsortiumError, match="not finished"):
        open_kit(tmp_path / "london", as_site=True)
    with pytest.raises(ConsortiumError, match="not empty"):
        join(tmp_path / "london", "london")


def test_a_members_file_without_this_site_does_not_finish_its_kit(place, tmp_path):
    join(tmp_path / "madrid", "madrid")
    with pytest.raises(ConsortiumError, match="no certificate of madrid yet"):
        update(tmp_path / "madrid", place / "consortium" / MEMBERS)


def test_the_authority_signs_expected_names_and_their_own_keys_only(place, tmp_path):
    path = tmp_path / "request.csr"
    for name, complaint in (
        ("madrid", "give --add"),
        ("paris", "is a member with another key"),
        ("coordinator", "cannot be called"),
        ("localhost", "cannot be called"),
    ):
        path.write_bytes(new_request(name, new_key()))
        with pytest.raises(ConsortiumError, match=complaint):
            sign_requests(place / "consortium", [path])
    path.write_text("nonsense")
    with pytest.raises(CertificateError, match="not a signing request"):
        sign_requests(place / "consortium", [path])
    # A request for a key that the sender does not have.
    genuine, other = new_request("paris", new_key()), new_request("paris", new_key())
    middle = len(genuine) // 2
    path.write_bytes(genuine[:middle] + other[middle:])
    with pytest.raises(CertificateError):
        sign_requests(place / "consortium", [path])


def test_all_requests_are_signed_or_none(place, tmp_path):
    before = (place / "consortium" / MEMBERS).read_text()
    madrid = join(tmp_path / "madrid", "madrid").path
    (tmp_path / "bad.csr").write_text("nonsense")
    with pytest.raises(CertificateError):
        sign_requests(place / "consortium", [madrid, tmp_path / "bad.csr"], may_add=True)
    assert (place / "consortium" / MEMBERS).read_text() == before


# ---- the members file


def test_a_members_file_that_was_changed_is_refused(place):
    path = place / "consortium" / MEMBERS
    facts = json.loads(path.read_text())
    for change in ({"host": "evil.example"}, {"revoked": {}, "issue": 99}, {"sites": {}}):
        (place / "changed.json").write_text(json.dumps(facts | change))
        with pytest.raises(CertificateError, match="changed after the authority signed"):
            update(place / "london", place / "changed.json")
    (place / "changed.json").write_text("{}")
    with pytest.raises(ConsortiumError, match="not a members file"):
        update(place / "london", place / "changed.json")
    with pytest.raises(ConsortiumError, match="does not exist"):
        update(place / "london", place / "nowhere.json")


def test_a_members_file_of_another_authority_is_refused(place, tmp_path):
    provision(TRIO, tmp_path / "other")
    sign_requests(tmp_path / "other", [place / name / f"{name}.csr" for name in TRIO.sites])
    with pytest.raises(CertificateError, match="of another authority"):
        update(place / "london", tmp_path / "other" / MEMBERS)
    assert "another authority" in audit_of(place, "london")[-1]["text"]


def test_an_older_members_file_does_not_undo_a_revocation(place):
    shutil.copy(place / "consortium" / MEMBERS, place / "old.json")
    revoke(place / "consortium", "paris")
    update(place / "london", place / "consortium" / MEMBERS)
    with pytest.raises(CertificateError, match="is older"):
        update(place / "london", place / "old.json")


# ---- revocation and renewal


def test_a_revoked_site_is_trusted_by_nobody(place):
    seen = revoke(place / "consortium", "paris")
    assert update(place / "london", place / "consortium" / MEMBERS) == [
        "paris is no longer a member"
    ]
    with pytest.raises(CertificateError, match="paris was revoked"):
        identity_of(place, "london").check_roster(TRIO.sites)
    update(place / "paris", place / "consortium" / MEMBERS)
    with pytest.raises(CertificateError, match=r"key of paris was revoked .*renew --new-key"):
        accepted.check_own_certificate(kit_of(place, "paris"))
    assert seen in kit_of(place, "london").members().revoked
    with pytest.raises(ConsortiumError, match="paris is not a member; members are london, rome"):
        revoke(place / "consortium", "paris")


def test_a_revoked_site_comes_back_with_a_new_key_that_others_accept(place):
    revoke(place / "consortium", "paris")
    with pytest.raises(ConsortiumError, match="key of paris was revoked"):
        sign_requests(place / "consortium", [place / "paris" / "paris.csr"])
    request = renew(place / "paris", with_new_key=True)
    sign_requests(place / "consortium", [request.path])
    for name in TRIO.sites:
        update(place / name, place / "consortium" / MEMBERS)
    accepted.check_own_certificate(kit_of(place, "paris"))
    with pytest.raises(CertificateError, match="another key"):
        identity_of(place, "london").check_roster(TRIO.sites)
    accepted.accept(place / "london", "paris", request.fingerprint)
    identity_of(place, "london").check_roster(TRIO.sites)
    identity_of(place, "london").verify("paris", b"x", identity_of(place, "paris").sign(b"x"))


def test_an_expired_certificate_is_refused_and_renewed_without_a_second_look(place):
    request = renew(place / "paris")
    sign_requests(place / "consortium", [request.path], days=1e-6)
    for name in TRIO.sites:
        update(place / name, place / "consortium" / MEMBERS)
    with pytest.raises(CertificateError, match=r"certificate of paris expired .*site renew"):
        identity_of(place, "london").check_roster(TRIO.sites)
    with pytest.raises(CertificateError, match="expired"):
        accepted.check_own_certificate(kit_of(place, "paris"))
    (signed,) = sign_requests(place / "consortium", [request.path])
    assert not signed.is_new
    for name in TRIO.sites:
        update(place / name, place / "consortium" / MEMBERS)
        identity_of(place, name).check_roster(TRIO.sites)  # nobody had to accept anything


def test_the_coordinator_gets_new_certificates(place):
    kit = renew_coordinator(place / "consortium", days=30)
    for path in (kit.startup / "server.crt", kit.admin / "startup" / "client.crt"):
        certificate = certificates.certificate_from_pem(path.read_bytes())
        assert certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=31)


def test_damaged_lists_of_accepted_sites_accept_nobody(place):
    (place / "london" / "accepted.json").write_text('{"paris": 3}')
    with pytest.raises(ConsortiumError, match="is damaged"):
        identity_of(place, "london").check_roster(TRIO.sites)
