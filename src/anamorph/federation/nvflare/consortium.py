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
    try:
        return _checked(facts)
    except ConsortiumError as error:
        raise ConsortiumError(f"{path}: {error}") from None


def _checked(facts: dict[str, Any]) -> Consortium:
    """Return a consortium, or raise a ConsortiumError that names the wrong entry."""
    _check_keys("", facts, {"name", "server", "sites"})
    server, sites = facts["server"], facts["sites"]
    if not isinstance(server, dict):
        raise ConsortiumError(f"server must be e.g. {{host: HOST, port: {DEFAULT_PORT}}}")
    server = {"port": DEFAULT_PORT} | server
    _check_keys("server: ", server, {"host", "port"})
    host, port = server["host"], server["port"]
    _check_name("name", facts["name"])
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise ConsortiumError(f"host must be a host name or an address, got {host!r}")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ConsortiumError(f"port must be an integer from 1 to 65535, got {port!r}")
    _check_sites(sites, host)
    return Consortium(facts["name"], host, port, tuple(sites))


def _check_keys(place: str, facts: dict[str, Any], expected: set[str]) -> None:
    for names, fault in (
        (expected - facts.keys(), "missing"),
        (facts.keys() - expected, "not known"),
    ):
        if names:
            named = ", ".join(sorted(map(str, names)))
            raise ConsortiumError(f"{place}{named} is {fault}; the file must hold {_EXAMPLE}")


def _check_name(key: str, name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConsortiumError(f"{key} must be up to 63 letters, digits, '-' or '_', got {name!r}")


def _check_sites(sites: Any, host: str) -> None:
    if not isinstance(sites, list) or not sites:
        raise ConsortiumError(f"sites must be a list of names, got {sites!r}")
    for name in sites:
        _check_name("a site", name)
    if len(set(map(str.lower, sites))) < len(sites):
        raise ConsortiumError(f"sites must have different names, got {', '.join(sites)}")
    for name in sites:
        check_site_name(name, host)


def check_site_name(name: str, host: str) -> None:
    """Raise a ConsortiumError if a site cannot have a name, which another party has.

    Parameters
    ----------
    name : str
    host : str
        Of the coordinator: its certificate is issued to it.
    """
    _check_name("a site", name)
    if name.lower() in (*_RESERVED, host.lower()):
        raise ConsortiumError(f"a site cannot be called {name}; choose another name")
