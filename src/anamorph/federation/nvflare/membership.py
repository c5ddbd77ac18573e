"""How a site becomes a member and stays one: its key is made here, and never leaves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from anamorph.federation.nvflare.accepted import read_accepted
from anamorph.federation.nvflare.consortium import check_site_name
from anamorph.federation.nvflare.hardening import harden
from anamorph.federation.nvflare.kit import begin_kit, name_of_kit, open_kit, write_secret
from anamorph.federation.nvflare.members import MEMBERS, Members, read_members
from anamorph.federation.protocol.certificates import (
    fingerprint,
    key_from_pem,
    key_to_pem,
    new_key,
    new_request,
)
from anamorph.federation.protocol.errors import CertificateError, ConsortiumError
from anamorph.federation.site.audit import AuditLog

_KEY, _NEXT_KEY, _CERTIFICATE = "client.key", "client.key.next", "client.crt"


class Request(NamedTuple):
    """A signing request that was written.

    Attributes
    ----------
    path : Path
        The file to send to the consortium. It holds no secret.
    fingerprint : str
        Of the key, to read to the other sites.
    """

    path: Path
    fingerprint: str


def join(folder: Path, name: str) -> Request:
    """Begin the kit of a site: make its private key, and a request for the consortium to sign.

    Parameters
    ----------
    folder : Path
        For the kit; must be empty, or not exist yet.
    name : str
        Name of the site.

    Returns
    -------
    Request
    """
    check_site_name(name, host="")
    begin_kit(folder, name)
    write_secret(folder / "startup" / _KEY, key_to_pem(new_key()))
    return _write_request(folder, name, folder / "startup" / _KEY)


def renew(folder: Path, with_new_key: bool = False) -> Request:
    """Write a request for a new certificate.

    Parameters
    ----------
    folder : Path
        Of the kit.
    with_new_key : bool, default False
        Whether to make a new key, which the other sites must accept. It is used as soon as `update`
        brings a certificate for it.

    Returns
    -------
    Request
    """
    name, key = name_of_kit(folder), folder / "startup" / _KEY
    if with_new_key:
        key = folder / "startup" / _NEXT_KEY
        write_secret(key, key_to_pem(new_key()))
    return _write_request(folder, name, key)


def _write_request(folder: Path, name: str, key_path: Path) -> Request:
    key = key_from_pem(key_path.read_bytes(), str(key_path))
    path = folder / f"{name}.csr"
    path.write_bytes(new_request(name, key))
    return Request(path, fingerprint(key.public_key()))


def update(folder: Path, path: Path) -> list[str]:
    """Take a members file over into the kit of a site.

    The first one finishes the kit; later ones bring new members, renewals and revocations. Nothing
    in it makes a key trusted that nobody here has accepted.

    Parameters
    ----------
    folder : Path
        Of the kit.
    path : Path
        The consortium's members file.

    Returns
    -------
    list of str
        What has changed, in lines for people.

    Raises
    ------
    CertificateError
        If it is of another authority, is older than the kit's own, or has somebody else's key under
        the name of this site. The kit is then unchanged.
    """
    name, members = name_of_kit(folder), read_members(path)
    before = read_members(folder / MEMBERS) if (folder / MEMBERS).exists() else None
    audit = AuditLog(folder / "work" / "audit.jsonl")
    try:
        _check_succession(before, members, path)
        key = _key_for(folder, name, members)
    except CertificateError as error:
        audit.write(event="refused", error=type(error).__name__, text=str(error), do="update")
        raise
    if key is not None:
        if key.name == _NEXT_KEY:
            key.replace(folder / "startup" / _KEY)
        (folder / "startup" / _CERTIFICATE).write_text(members.sites[name], encoding="ascii")
    (folder / "startup" / "rootCA.pem").write_text(members.authority, encoding="ascii")
    if path.resolve() != (folder / MEMBERS).resolve():
        shutil.copyfile(path, folder / MEMBERS)
    harden(open_kit(folder, as_site=True))
    changes = _changes(before, members, read_accepted(folder) | _own(name, members))
    if key is not None and key.name == _NEXT_KEY:
        changes.append(f"{name} uses its new key from its next start: restart it if it runs")
    audit.write(event="updated", issue=members.issue, text="; ".join(changes))
    return changes


def _check_succession(before: Members | None, members: Members, path: Path) -> None:
    """Raise a CertificateError unless a members file may follow the one in the kit."""
    if before is None:
        return
    first, other = (file.authority_certificate.public_key() for file in (before, members))
    if fingerprint(first) != fingerprint(other):
        raise CertificateError(
            f"{path} is of another authority ({fingerprint(other)}) than that of this kit "
            f"({fingerprint(first)})"
        )
    if members.issue < before.issue:
        raise CertificateError(
            f"{path} is older (issue {members.issue}) than the file of this kit (issue "
            f"{before.issue}): ask for the newest one"
        )


def _key_for(folder: Path, name: str, members: Members) -> Path | None:
    """Return the path of the key that the site's certificate is for; None if it was revoked."""
    paths = [folder / "startup" / file for file in (_KEY, _NEXT_KEY)]
    own = {
        fingerprint(key_from_pem(path.read_bytes(), str(path)).public_key()): path
        for path in paths
        if path.exists()
    }
    if name in members.sites:
        seen = members.fingerprints()[name]
        if seen in own:
            return own[seen]
        raise CertificateError(
            f"the members file has a key under the name {name} that this kit did not make ({seen}; "
            f"here: {', '.join(own)}): somebody else was signed as {name}; tell the other sites"
        )
    if own.keys() & members.revoked.keys():
        return None
    raise ConsortiumError(
        f"the members file has no certificate of {name} yet: send {folder / name}.csr to the "
        "consortium, and ask for the file that it makes then"
    )


def _own(name: str, members: Members) -> dict[str, str]:
    return {name: members.fingerprints()[name]} if name in members.sites else {}


def _changes(before: Members | None, members: Members, accepted: Mapping[str, str]) -> list[str]:
    """Return what has changed for people here to know or to do."""
    old = {} if before is None else before.fingerprints()
    lines = []
    for site, seen in sorted(members.fingerprints().items()):
        if old.get(site, seen) != seen:
            lines.append(f"{site} has a new key")
        if site in accepted and accepted[site] != seen:
            lines.append(
                f"{site} is shown with another key ({seen}) than the accepted one "
                f"({accepted[site]}): it is not trusted"
            )
        elif site not in accepted:
            lines.append(
                f"{site} is not accepted yet: ask somebody there for the fingerprint, and run "
                f"'anamorph site accept KIT {site} FINGERPRINT'"
            )
    gone = sorted(old.keys() - members.sites.keys())
    lines += [f"{site} is no longer a member" for site in gone]
    return lines or ["nothing that needs doing here"]
