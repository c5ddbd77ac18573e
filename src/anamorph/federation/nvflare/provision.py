"""Make the kits of a consortium: a certificate authority, and a certificate for each party."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace

from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from anamorph.federation.nvflare.consortium import COORDINATOR, Consortium
from anamorph.federation.nvflare.hardening import ROLE, harden
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.protocol.errors import ConsortiumError

# NVFLARE requires a mail address here, but sends no mail.
ADMIN = "coordinator@consortium.invalid"
AUTHORITY = "authority"

# NVFLARE's own ways to start a party, which would bypass our commands.
_LEFT_OUT = ("*.sh", "*.ipynb", "*.default", "*.sample", "readme.txt")


def provision(consortium: Consortium, folder: Path) -> list[Kit]:
    """Make one kit per party in a new folder, and store the authority's key there.

    Whoever holds ``authority`` can add sites, so it is in none of the kits.

    Parameters
    ----------
    consortium : Consortium
    folder : Path
        Must be empty, or not exist yet.

    Returns
    -------
    list of Kit
        The coordinator's first.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConsortiumError(f"{folder} is not empty: give a folder that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = _make(consortium, Path(temporary))
        parties = {COORDINATOR: consortium.host} | {site: site for site in consortium.sites}
        kits = [_finish_kit(consortium, made, folder, *party) for party in parties.items()]
        _keep_authority(made.parent / "state" / "cert.json", folder / AUTHORITY)
    return kits


def _make(consortium: Consortium, folder: Path) -> Path:
    """Make NVFLARE's own kits; return the folder that they are in."""
    project = Project(consortium.name, "", props={"api_version": 3})
    project.set_server(
        consortium.host,
        COORDINATOR,
        {"fed_learn_port": consortium.port, "default_host": consortium.host},
    )
    for site in consortium.sites:
        project.add_client(site, site, {"allow_log_streaming": False})
    project.add_admin(ADMIN, COORDINATOR, {"role": ROLE})
    complaints: list[str] = []
    log = SimpleNamespace(
        debug=_ignore, info=_ignore, warning=complaints.append, error=complaints.append
    )
    builders = [WorkspaceBuilder(), StaticFileBuilder(scheme="tcp"), CertBuilder()]
    context = Provisioner(str(folder), builders).provision(project, logger=log)
    if context.get("__build_error__") or complaints:
        raise ConsortiumError(f"kits could not be made: {'; '.join(complaints)}")
    return folder / consortium.name / "prod_00"


def _ignore(text: str) -> None:
    """Do not print what NVFLARE logs."""


def _finish_kit(consortium: Consortium, made: Path, folder: Path, name: str, made_as: str) -> Kit:
    kit = Kit((folder / name).resolve(), name, *astuple(consortium))
    shutil.copytree(made / made_as, kit.folder, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    if not kit.is_site:
        shutil.copytree(made / ADMIN, kit.admin, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    kit.certificate(name).parent.mkdir()
    for site in consortium.sites:
        shutil.copyfile(made / site / "startup" / "client.crt", kit.certificate(site))
    kit.folder.chmod(0o700)
    kit.write_facts()
    harden(kit)
    return kit


def _keep_authority(state: Path, folder: Path) -> None:
    """Store the authority's certificate and key, but not NVFLARE's copies of all other keys."""
    keys = json.loads(state.read_text(encoding="utf-8"))
    folder.mkdir(mode=0o700)
    for name, key in (("authority.crt", "root_cert"), ("authority.key", "root_pri_key")):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(keys[key], encoding="utf-8")
