"""Accepted keys: those that a person at a site has compared with what the other sites read out.

The authority can put any key under any name into the members file. A site therefore trusts a key
only if its members file has it under that name, *and* somebody here has typed its fingerprint.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.nvflare.members import MEMBERS, Members, read_members
from anamorph.federation.protocol.certificates import (
    checked_fingerprint,
    fingerprint,
    key_from_pem,
)
from anamorph.federation.protocol.errors import CertificateError, ConsortiumError
from anamorph.storage.replace import replacing

_ACCEPTED = "accepted.json"


def read_accepted(folder: Path) -> dict[str, str]:
    """Return the fingerprints that were accepted in a kit, by name of the site."""
    path = folder / _ACCEPTED
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {name: checked_fingerprint(entry["fingerprint"]) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, CertificateError):
        raise ConsortiumError(
            f"{path} is damaged: remove it, and accept the other sites again"
        ) from None


def accept(folder: Path, name: str, typed: str) -> str:
    """Record that a person has accepted the key of a site.

    Parameters
    ----------
    folder : Path
        Of the kit.
    name : str
        Name of the other site; its certificate need not have arrived yet.
    typed : str
        Fingerprint of its key, as the other site reads it out.

    Returns
    -------
    str
        The fingerprint, in groups.

    Raises
    ------
    CertificateError
        If the members file has another key under that name: one of the two is not the site's.
    """
    given = checked_fingerprint(typed)
    if (folder / MEMBERS).exists():
        members = read_members(folder / MEMBERS)
        if name in members.sites and members.fingerprints()[name] != given:
            raise CertificateError(
                f"the certificate of {name} has the fingerprint {members.fingerprints()[name]}, "
                f"not {given}: if {name} reads out the second one, the first is not its key, and "
                "the consortium's authority must say where it comes from"
            )
    entries = _read_entries(folder)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    _write_entries(folder, entries | {name: {"fingerprint": given, "accepted": now, "by": _user()}})
    return given


def withdraw(folder: Path, name: str) -> None:
    """Take back that a site was accepted, or raise a ConsortiumError if it was not."""
    entries = _read_entries(folder)
    if name not in entries:
        raise ConsortiumError(
            f"{name} was not accepted here; accepted are {', '.join(sorted(entries)) or 'none'}"
        )
    del entries[name]
    _write_entries(folder, entries)


def _read_entries(folder: Path) -> dict[str, dict[str, str]]:
    read_accepted(folder)  # raises an error if it is damaged
    path = folder / _ACCEPTED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write_entries(folder: Path, entries: dict[str, dict[str, str]]) -> None:
    with replacing(folder / _ACCEPTED) as temporary:
        temporary.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return "unknown"


# ---- what is trusted now


@dataclass(frozen=True)
class Standing:
    """How a site sees a member.

    Attributes
    ----------
    name : str
    fingerprint : str or None
        Of the key in the members file, if it is trusted here. Otherwise None: it must be asked for
        at the other site, and not be read off a screen here.
    problem : str or None
        Why its key is not trusted here. None: it is.
    """

    name: str
    fingerprint: str | None
    problem: str | None


def standings(kit: Kit) -> list[Standing]:
    """Return how a site sees every member, itself included."""
    members, keys = kit.members(), AcceptedKeys(kit)
    found = []
    for name, seen in sorted(members.fingerprints().items()):
        try:
            keys[name]
            found.append(Standing(name, seen, None))
        except CertificateError as error:
            found.append(Standing(name, None, str(error)))
    return found


class AcceptedKeys(Mapping[str, rsa.RSAPublicKey]):
    """The public keys that are trusted at a site, by name.

    A name that is not trusted raises a CertificateError that says why. Files are looked at for
    every lookup, so that a key is trusted no longer than the members file and a person say.

    Parameters
    ----------
    kit : Kit
        Of the site.
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._stamp: tuple[object, ...] = ()
        self._members: Members | None = None
        self._accepted: dict[str, str] = {}

    def __getitem__(self, name: str) -> rsa.RSAPublicKey:
        members = self._current_members()
        key = members.valid_certificate(name).public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        seen, accepted = fingerprint(key), self._accepted.get(name)
        if name == self._kit.name:
            return key
        if accepted is None:
            raise CertificateError(
                f"{name} is not accepted at {self._kit.name}: somebody there must ask {name} for "
                "the fingerprint of its key, and run 'anamorph site accept'"
            )
        if accepted != seen:
            raise CertificateError(
                f"the certificate of {name} is for another key ({seen}) than the one accepted at "
                f"{self._kit.name} ({accepted}): it is not trusted"
            )
        return key

    def __iter__(self) -> Iterator[str]:
        return iter(self._current_members().sites)

    def __len__(self) -> int:
        return len(self._current_members().sites)

    def _current_members(self) -> Members:
        folder = self._kit.folder
        stamp = tuple(_stamp_of(folder / name) for name in (MEMBERS, _ACCEPTED))
        if self._members is None or stamp != self._stamp:
            self._members, self._accepted = read_members(folder / MEMBERS), read_accepted(folder)
            self._stamp = stamp
        return self._members


def check_own_certificate(kit: Kit) -> None:
    """Raise a CertificateError unless the members file has a valid certificate for a kit's key."""
    members = kit.members()
    path = kit.startup / "client.key"
    own = fingerprint(key_from_pem(path.read_bytes(), str(path)).public_key())
    if own in members.revoked:
        raise CertificateError(
            f"the key of {kit.name} was revoked ({members.revoked[own]}): ask the consortium, and "
            "make a new one with 'anamorph site renew --new-key'"
        )
    certificate = members.valid_certificate(kit.name)
    if fingerprint(certificate.public_key()) != own:
        raise CertificateError(
            f"the consortium's certificate of {kit.name} is for another key than that of this kit"
        )


def _stamp_of(path: Path) -> tuple[int, ...]:
    if not path.exists():
        return ()
    facts = path.stat()
    return (facts.st_mtime_ns, facts.st_size, facts.st_ino)
