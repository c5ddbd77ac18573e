"""A kit: the folder that makes a computer the coordinator or one of the sites.

It holds the party's key and certificates (``startup``), the consortium's members file, the keys of
other sites that a person has accepted (``accepted.json``, at a site), what NVFLARE may do there
(``local``), and the files of fits (``work``).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.consortium import COORDINATOR
from anamorph.federation.nvflare.members import MEMBERS, Members, read_members
from anamorph.federation.protocol.errors import ConsortiumError

_FACTS, _VERSION = "kit.json", 2


@dataclass(frozen=True)
class Kit:
    """The kit of one party.

    Attributes
    ----------
    folder : Path
        Absolute path of the kit.
    name : str
        Name of the party; the coordinator's is ``coordinator``.
    consortium : str
        Name of the consortium.
    host, port : str and int
        Address of the coordinator.
    sites : tuple of str
        Names of all sites of the consortium.
    """

    folder: Path
    name: str
    consortium: str
    host: str
    port: int
    sites: tuple[str, ...]

    @property
    def is_site(self) -> bool:
        """Whether this is the kit of a site, not of the coordinator."""
        return self.name != COORDINATOR

    @property
    def startup(self) -> Path:
        """Key and certificates of the party, and the address of the coordinator."""
        return self.folder / "startup"

    @property
    def local(self) -> Path:
        """What NVFLARE may do here."""
        return self.folder / "local"

    @property
    def admin(self) -> Path:
        """Key and certificate with which the coordinator submits jobs."""
        return self.folder / "admin"

    @property
    def work(self) -> Path:
        """Files of fits: latents, ledger and audit log, or requests and jobs."""
        return self.folder / "work"

    @property
    def audit_log(self) -> Path:
        """The audit log of a site."""
        return self.work / "audit.jsonl"

    def members(self) -> Members:
        """Return the members as they are now: the file may have been replaced."""
        return read_members(self.folder / MEMBERS)


def open_kit(folder: Path, as_site: bool) -> Kit:
    """Open the kit in a folder.

    Parameters
    ----------
    folder : Path
    as_site : bool
        Whether it must be the kit of a site, or else of the coordinator.

    Returns
    -------
    Kit

    Raises
    ------
    ConsortiumError
        If there is no kit, that of another kind of party, or one that has not been finished.
    """
    name = name_of_kit(folder)
    if (name != COORDINATOR) != as_site:
        wanted, found = ("a site", "the coordinator") if as_site else ("the coordinator", "a site")
        raise ConsortiumError(f"{folder} is the kit of {found}, but the kit of {wanted} is needed")
    if not (folder / MEMBERS).exists():
        raise ConsortiumError(
            f"{folder} is not finished: send {name}.csr in it to the consortium, and give the "
            f"{MEMBERS} that comes back to 'anamorph site update'"
        )
    members = read_members(folder / MEMBERS)
    return Kit(
        folder.resolve(),
        name,
        members.consortium,
        members.host,
        members.port,
        tuple(sorted(members.sites)),
    )


def name_of_kit(folder: Path) -> str:
    """Return the name of the party whose kit is in a folder, or raise a ConsortiumError."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConsortiumError(
            f"{folder} is not a kit: 'anamorph site join' makes that of a site, 'anamorph "
            "federation provision' that of the coordinator"
        ) from None
    except ValueError:
        raise ConsortiumError(f"{folder / _FACTS} is damaged: it is not JSON") from None
    if facts.get("version") != _VERSION:
        raise ConsortiumError(f"{folder} is a kit of another version of anamorph: make a new one")
    return str(facts["name"])


def begin_kit(folder: Path, name: str) -> None:
    """Make the folder of a kit, which only its owner may read, and the file that names the party.

    Raises
    ------
    ConsortiumError
        If the folder exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConsortiumError(f"{folder} is not empty: give a folder that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for part in ("startup", "local", "work"):
        (folder / part).mkdir()
    write_json(folder / _FACTS, {"name": name, "version": _VERSION})


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that people can read."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read; it was never readable by others."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "wb") as stream:
        if hasattr(os, "fchmod"):  # not on Windows
            os.fchmod(stream.fileno(), 0o600)
        stream.write(data)
