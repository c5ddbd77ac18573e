"""The consortium's authority: it is founded once, signs requests, and revokes keys.

It never sees a site's private key: a site sends a signing request and gets a certificate. The keys
that are made here are the authority's own, and those of the coordinator, whose kit stands beside.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from anamorph.federation.nvflare.consortium import (
    COORDINATOR,
    Consortium,
    check_site_name,
)
from anamorph.federation.nvflare.hardening import ADMIN, ROLE, harden
from anamorph.federation.nvflare.kit import (
    Kit,
    begin_kit,
    open_kit,
    write_json,
    write_secret,
)
from anamorph.federation.nvflare.members import (
    MEMBERS,
    Members,
    new_issue,
    read_members,
    write_members,
)
from anamorph.federation.protocol.certificates import (
    PARTY_DAYS,
    certificate_to_pem,
    fingerprint,
    issue,
    key_from_pem,
    key_to_pem,
    new_authority,
    new_key,
    read_request,
)
from anamorph.federation.protocol.errors import ConsortiumError

AUTHORITY = "authority"
_KEY, _EXPECTED = "authority.key", "sites.json"


def provision(consortium: Consortium, folder: Path) -> Kit:
    """Found a consortium in a new folder: the authority's key, and the kit of the coordinator.

    Parameters
    ----------
    consortium : Consortium
    folder : Path
        Must be empty, or not exist yet.

    Returns
    -------
    Kit
        The coordinator's. Sites make their own, and send requests for `sign_requests`.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConsortiumError(f"{folder} is not empty: give a folder that does not exist yet")
    own = folder / AUTHORITY
    own.mkdir(parents=True)
    own.chmod(0o700)
    key = new_key()
    write_secret(own / _KEY, key_to_pem(key))
    write_json(own / _EXPECTED, {"sites": list(consortium.sites)})
    empty = Members(
        consortium.name,
        consortium.host,
        consortium.port,
        issue=0,
        issued="",
        authority=certificate_to_pem(new_authority(consortium.name, key)),
        sites={},
    )
    write_members(folder / MEMBERS, new_issue(empty), key)
    begin_kit(folder / COORDINATOR, COORDINATOR)
    for part in ("startup", "local"):
        (folder / COORDINATOR / "admin" / part).mkdir(parents=True)
    return renew_coordinator(folder)


def renew_coordinator(folder: Path, days: float = PARTY_DAYS) -> Kit:
    """Give the coordinator new keys and certificates.

    Parameters
    ----------
    folder : Path
        Of the consortium.
    days : float, default 365
        For which they are valid.

    Returns
    -------
    Kit
    """
    authority = _Authority.open(folder)
    members, kit = authority.members, folder / COORDINATOR
    shutil.copyfile(folder / MEMBERS, kit / MEMBERS)
    parties = (
        (kit / "startup", "server", members.host[:64], None),
        (kit / "admin" / "startup", "client", ADMIN, ROLE),
    )
    for place, file, name, role in parties:
        own = new_key()
        host = members.host if role is None else name
        certificate = issue(
            members.authority_certificate,
            authority.key,
            name,
            own.public_key(),
            days=days,
            host=host,
            role=role,
        )
        write_secret(place / f"{file}.key", key_to_pem(own))
        (place / f"{file}.crt").write_text(certificate_to_pem(certificate), encoding="ascii")
        (place / "rootCA.pem").write_text(members.authority, encoding="ascii")
    opened = open_kit(kit, as_site=False)
    harden(opened)
    return opened


@dataclass(frozen=True)
class Signed:
    """A request that was signed.

    Attributes
    ----------
    name : str
        Name of the site.
    fingerprint : str
        Of its key.
    is_new : bool
        Whether the site was not a member before.
    """

    name: str
    fingerprint: str
    is_new: bool


def sign_requests(
    folder: Path, requests: Sequence[Path], *, may_add: bool = False, days: float = PARTY_DAYS
) -> list[Signed]:
    """Sign the requests of sites, and issue a new members file with their certificates.

    All are signed, or none.

    Parameters
    ----------
    folder : Path
        Of the consortium.
    requests : list of Path
        Signing requests.
    may_add : bool, default False
        Whether names that the consortium did not expect are added to it.
    days : float, default 365
        For which the certificates are valid.

    Returns
    -------
    list of Signed

    Raises
    ------
    ConsortiumError
        If a site is not expected, is a member with another key, or has a key that was revoked.
    """
    authority = _Authority.open(folder)
    members, sites, signed = authority.members, dict(authority.members.sites), []
    expected, known = authority.expected(), authority.members.fingerprints()
    for path in requests:
        name, public_key = read_request(path.read_bytes(), str(path))
        check_site_name(name, members.host)
        seen = fingerprint(public_key)
        if name not in expected:
            if not may_add:
                raise ConsortiumError(
                    f"{path} is for {name}, but the sites are {', '.join(expected)}: give --add "
                    "to add it to the consortium"
                )
            expected.append(name)
        if known.get(name, seen) != seen:
            raise ConsortiumError(
                f"{name} is a member with another key ({known[name]}): if it has made a new one, "
                f"revoke the old one first with 'anamorph federation revoke'"
            )
        if seen in members.revoked:
            raise ConsortiumError(
                f"the key of {name} was revoked ({members.revoked[seen]}): it needs a new one, "
                "made by 'anamorph site renew --new-key'"
            )
        certificate = issue(
            members.authority_certificate, authority.key, name, public_key, days=days
        )
        signed.append(Signed(name, seen, name not in sites))
        sites[name] = certificate_to_pem(certificate)
    authority.issue(new_issue(members, sites=sites))
    write_json(folder / AUTHORITY / _EXPECTED, {"sites": expected})
    return signed


def revoke(folder: Path, site: str) -> str:
    """Revoke the key of a site, and issue a new members file without it.

    Parameters
    ----------
    folder : Path
        Of the consortium.
    site : str

    Returns
    -------
    str
        Fingerprint of the key.
    """
    authority = _Authority.open(folder)
    members = authority.members
    if site not in members.sites:
        raise ConsortiumError(
            f"{site} is not a member; members are {', '.join(sorted(members.sites)) or 'none'}"
        )
    seen = members.fingerprints()[site]
    sites = {name: text for name, text in members.sites.items() if name != site}
    revoked = dict(members.revoked) | {seen: f"{site}, {datetime.now(UTC):%Y-%m-%d}"}
    authority.issue(new_issue(members, sites=sites, revoked=revoked))
    return seen


def missing_sites(folder: Path) -> list[str]:
    """Return the names of expected sites that have no certificate."""
    authority = _Authority.open(folder)
    return [name for name in authority.expected() if name not in authority.members.sites]


@dataclass(frozen=True)
class _Authority:
    """The authority in the folder of a consortium."""

    folder: Path
    key: rsa.RSAPrivateKey
    members: Members

    @classmethod
    def open(cls, folder: Path) -> _Authority:
        path = folder / AUTHORITY / _KEY
        if not path.exists():
            raise ConsortiumError(
                f"{folder} has no {AUTHORITY}: give the folder that 'anamorph federation "
                "provision' made"
            )
        key = key_from_pem(path.read_bytes(), str(path))
        return cls(folder, key, read_members(folder / MEMBERS))

    def expected(self) -> list[str]:
        """Return the names of sites that were announced at the beginning, or added."""
        text = (self.folder / AUTHORITY / _EXPECTED).read_text(encoding="utf-8")
        return list(json.loads(text)["sites"])

    def issue(self, members: Members) -> None:
        """Write the members file, also into the coordinator's kit where that stands beside."""
        write_members(self.folder / MEMBERS, members, self.key)
        if (self.folder / COORDINATOR).is_dir():
            write_members(self.folder / COORDINATOR / MEMBERS, members, self.key)
