"""A kit: the folder that makes a computer the coordinator or one of the sites.

It holds the party's key and certificates (``startup``), what NVFLARE may do there (``local``), the
certificates of all sites (``sites``), and the files of fits (``work``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import ConsortiumError

_FACTS, _VERSION = "kit.json", 1


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
        return self.name in self.sites

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

    def certificate(self, site: str) -> Path:
        """Return the path of the certificate that a site had when the kit was made."""
        return self.folder / "sites" / f"{site}.crt"

    def write_facts(self) -> None:
        """Write the file that describes the kit."""
        facts = asdict(self) | {"version": _VERSION}
        del facts["folder"]
        write_json(self.folder / _FACTS, facts)


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
        If there is no kit, or that of another kind of party.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConsortiumError(
            f"{folder} is not a kit: 'anamorph federation provision' makes one for every party"
        ) from None
    if facts.pop("version") != _VERSION:
        raise ConsortiumError(f"{folder} is a kit of another version of anamorph: make a new one")
    kit = Kit(folder.resolve(), **(facts | {"sites": tuple(facts["sites"])}))
    if kit.is_site != as_site:
        wanted, found = ("a site", "the coordinator") if as_site else ("the coordinator", "a site")
        raise ConsortiumError(f"{folder} is the kit of {found}, but the kit of {wanted} is needed")
    return kit


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that people can read."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
