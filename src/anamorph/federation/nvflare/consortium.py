"""A consortium: its name, the address of its coordinator, and its sites, read from a YAML file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from anamorph.federation.protocol.errors import ConsortiumError

DEFAULT_PORT = 8002
COORDINATOR = "coordinator"

_EXAMPLE = "name: NAME, server: {host: HOST, port: 8002}, sites: [A, B, C]"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_RESERVED = (COORDINATOR, "server", "authority")


@dataclass(frozen=True)
class Consortium:
    """The parties of a federation.

    Attributes
    ----------
    name : str
        Name of the consortium.
    host : str
        Host name or address of the coordinator; its certificate is issued to it.
    port : int
        The one port that the coordinator opens.
    sites : tuple of str
        Names of all sites.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]


def read_consortium(path: Path) -> Consortium:
    """Return the consortium in a YAML file, or raise a ConsortiumError that says what is wrong."""
    try:
        facts = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConsortiumError(f"{path} is not a YAML file: {error}") from None
    if not isinstance(facts, dict):
        raise ConsortiumError(f"{path} must hold {_EXAMPLE}")
    _check_keys(path, "", facts, {"name", "server", "sites"})
    server = facts["server"]
    if not isinstance(server, dict):
        raise ConsortiumError(f"{path}: server must be e.g. {{host: HOST, port: {DEFAULT_PORT}}}")
    server = {"port": DEFAULT_PORT} | server
    _check_keys(path, "server: ", server, {"host", "port"})
    return Consortium(
        _checked_name(path, "name", facts["name"]),
        _checked_host(path, server["host"]),
        _checked_port(path, server["port"]),
        _checked_sites(path, facts["sites"]),
    )


def _check_keys(path: Path, place: str, facts: dict[str, Any], expected: set[str]) -> None:
    if missing := expected - facts.keys():
        raise ConsortiumError(
            f"{path}: {place}{', '.join(sorted(missing))} is missing; the file must hold {_EXAMPLE}"
        )
    if unknown := facts.keys() - expected:
        raise ConsortiumError(
            f"{path}: {place}{', '.join(sorted(map(str, unknown)))} is not known; the file must "
            f"hold {_EXAMPLE}"
        )


def _checked_name(path: Path, key: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConsortiumError(
            f"{path}: {key} must be up to 63 letters, digits, '-' or '_', got {name!r}"
        )
    return name


def _checked_host(path: Path, host: Any) -> str:
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise ConsortiumError(f"{path}: host must be a host name or an address, got {host!r}")
    return host


def _checked_port(path: Path, port: Any) -> int:
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ConsortiumError(f"{path}: port must be an integer from 1 to 65535, got {port!r}")
    return port


def _checked_sites(path: Path, sites: Any) -> tuple[str, ...]:
    if not isinstance(sites, list) or not sites:
        raise ConsortiumError(f"{path}: sites must be a list of names, got {sites!r}")
    names = tuple(_checked_name(path, "a site", site) for site in sites)
    if len(set(map(str.lower, names))) < len(names):
        raise ConsortiumError(f"{path}: sites must have different names, got {', '.join(names)}")
    for name in names:
        if name.lower() in _RESERVED:
            raise ConsortiumError(f"{path}: a site cannot be called {name}; choose another name")
    return names
