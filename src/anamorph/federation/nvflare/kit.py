"""A kit: the folder that makes a computer the coordinator or one of the sites.

It holds certificates (``startup``), what is allowed to happen there (``local``), the certificates
of all sites (``sites``), and everything that a fit leaves behind (``work``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from anamorph.federation.nvflare.errors import ConsortiumError

_FACTS, _VERSION = "kit.json", 1


@dataclass(frozen=True)
class Kit:
    """A kit.

    Attributes
    ----------
    folder : Path
        Absolute.
    name : str
        Of the party; the coordinator is called ``coordinator``.
    consortium : str
    host, port : str and int
        Where the coordinator listens.
    sites : tuple of str
        All of them.
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
        """Certificates, and where the coordinator is."""
        return self.folder / "startup"

    @property
    def local(self) -> Path:
        """What NVFLARE may do here."""
        return self.folder / "local"

    @property
    def admin(self) -> Path:
        """The coordinator's right to submit jobs."""
        return self.folder / "admin"

    @property
    def work(self) -> Path:
        """Whatever a fit leaves behind: latents, the audit log, jobs."""
        return self.folder / "work"

    def certificate(self, site: str) -> Path:
        """Return the certificate of a site, as it was when the kit was made."""
        return self.folder / "sites" / f"{site}.crt"

    def write_facts(self) -> None:
        """Write the file by which a kit is known."""
        facts = asdict(self) | {"version": _VERSION}
        del facts["folder"]
        (self.folder / _FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def open_kit(folder: Path, as_site: bool) -> Kit:
    """Return the kit in a folder, which must be that of a site or of the coordinator."""
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
        raise ConsortiumError(f"{folder} is the kit of {found}, and the kit of {wanted} is needed")
    return kit
