"""The checks of 'anamorph site doctor': whether a site is fit to take part, one line for each."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from anamorph.federation.nvflare.accepted import check_own_certificate, standings
from anamorph.federation.nvflare.acquaintance import CLOCK_TOLERANCE
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.runs import locked
from anamorph.federation.nvflare.site_data import SiteData
from anamorph.federation.protocol.errors import FederationError
from anamorph.federation.protocol.roster import LEAST_SITES
from anamorph.images.errors import ImageError, TableError
from anamorph.images.facts import remark_on_brightness

_SOON = timedelta(days=30)
_HELD = 1.0  # seconds after which a connection that was not refused is taken to be accepted
_LITTLE_SPACE, _NO_SPACE = 10e9, 1e9  # bytes
_PATIENCE = 5.0  # seconds for a connection
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes
    ----------
    check : str
        What was looked at.
    level : {"ok", "warning", "problem"}
        A site with a problem cannot take part.
    text : str
        What was found, and what to do.
    """

    check: str
    level: Level
    text: str


Found = Iterator[tuple[Level, str]]


def examine(folder: Path, data: SiteData | None) -> list[Finding]:
    """Check everything that a site needs to take part.

    Parameters
    ----------
    folder : Path
        Of the site's kit.
    data : SiteData or None
        The images and the policy. None: those that were last lent.

    Returns
    -------
    list of Finding
    """
    checks: list[tuple[str, Callable[[], Found]]] = [("installation", _installation)]
    try:
        kit = open_kit(folder, as_site=True)
    except FederationError as error:
        return [*_run(checks), Finding("kit", "problem", str(error))]
    checks += [
        ("key", lambda: _key(kit)),
        ("certificate", lambda: _certificate(kit)),
        ("accepted sites", lambda: _accepted(kit)),
        ("clock", lambda: _clock(kit)),
        ("coordinator", lambda: _coordinator(kit)),
        ("disk", lambda: _disk(kit)),
        ("old fits", lambda: _old_fits(kit)),
        ("running", lambda: _running(kit)),
        ("policy", lambda: _policy(data)),
        ("images", lambda: _images(data)),
    ]
    return _run(checks)


def _run(checks: list[tuple[str, Callable[[], Found]]]) -> list[Finding]:
    findings = []
    for name, check in checks:
        try:
            findings += [Finding(name, level, text) for level, text in check()]
        except (FederationError, ImageError, TableError) as error:
            findings.append(Finding(name, "problem", str(error)))
        except OSError as error:
            findings.append(Finding(name, "problem", f"{error.filename}: {error.strerror}"))
    return findings


# ---- this computer


def _installation() -> Found:
    names = ("anamorph", "nvflare")
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    yield "ok", f"{found}, Python {sys.version.split()[0]}; the same at all sites"


def _disk(kit: Kit) -> Found:
    """Look at the space for latents and sums, and for decoded images."""
    places = {"the kit": kit.work, "temporary files": Path(tempfile.gettempdir())}
    for what, path in places.items():
        free = shutil.disk_usage(path).free
        text = f"{free / 1e9:.1f} GB free for {what} ({path})"
        if free < _NO_SPACE:
            yield "problem", f"{text}: make space"
        elif free < _LITTLE_SPACE:
            yield "warning", f"{text}: large fits need several times the size of the model"
        else:
            yield "ok", text
    if not os.access(kit.work, os.W_OK):
        yield "problem", f"{kit.work} may not be written to: check its permissions"


def _old_fits(kit: Kit) -> Found:
    fits = [path for path in (kit.work / "fits").glob("*") if path.is_dir()]
    size = sum(path.stat().st_size for path in (kit.work / "fits").rglob("*") if path.is_file())
    if fits:
        yield (
            "warning",
            f"{kit.work / 'fits'} holds latents of {len(fits)} fits ({size / 1e6:.1f} MB): remove "
            "the folders of those that are finished",
        )
    else:
        yield "ok", "no latents of earlier fits are on this disk"


def _running(kit: Kit) -> Found:
    try:
        with locked(kit.work / "lock", ""):
            yield "ok", "the site is not running: 'anamorph site start' starts it"
    except FederationError:
        yield "ok", "the site is running"


def _clock(kit: Kit) -> Found:
    """Compare with the issue of the members file, and with the coordinator at the last job."""
    issued = datetime.strptime(kit.members().issued, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    behind = issued - datetime.now(UTC)
    if behind > timedelta(seconds=CLOCK_TOLERANCE):
        yield (
            "problem",
            f"this clock is before the members file was issued ({issued:%Y-%m-%d %H:%M} UTC): set "
            "it, best by NTP",
        )
        return
    path = kit.work / "clock.json"
    if not path.exists():
        yield "ok", "later than the members file; compared with the coordinator in the first job"
        return
    facts = json.loads(path.read_text(encoding="utf-8"))
    days = (time.time() - facts["measured"]) / 86400
    text = f"the coordinator's was {facts['ahead']:+.1f} s from this one, {days:.0f} days ago"
    if abs(facts["ahead"]) > CLOCK_TOLERANCE:
        yield "warning", f"{text}: set both by NTP"
    else:
        yield "ok", text


# ---- membership


def _key(kit: Kit) -> Found:
    path = kit.startup / "client.key"
    facts = path.stat()
    if os.name == "posix" and facts.st_mode & 0o077:
        yield "problem", f"others on this computer may read {path}: chmod 600 {path}"
    elif os.name == "posix" and facts.st_uid != os.getuid():
        yield "problem", f"{path} belongs to another user: run as the one who made the kit"
    else:
        yield "ok", f"only this user may read {path}"
    if (kit.startup / "client.key.next").exists():
        yield "warning", "a new key waits for its certificate: 'anamorph site update'"


def _certificate(kit: Kit) -> Found:
    check_own_certificate(kit)
    until = kit.members().certificate(kit.name).not_valid_after_utc
    if until - datetime.now(UTC) < _SOON:
        yield "warning", f"valid until {until:%Y-%m-%d}: run 'anamorph site renew' now"
    else:
        yield "ok", f"valid until {until:%Y-%m-%d}"
    authority = kit.members().authority_certificate.not_valid_after_utc
    if authority - datetime.now(UTC) < _SOON:
        yield "warning", f"the authority's own is valid until {authority:%Y-%m-%d}: ask for a new"


def _accepted(kit: Kit) -> Found:
    found = standings(kit)
    for entry in found:
        if entry.problem is not None and entry.name != kit.name:
            yield "warning", entry.problem
    trusted = [entry.name for entry in found if entry.problem is None]
    if len(trusted) < LEAST_SITES:
        yield (
            "problem",
            f"{len(trusted)} sites are trusted here, this one included, but masked sums need "
            f"{LEAST_SITES}: compare fingerprints, and run 'anamorph site accept'",
        )
    else:
        yield "ok", f"{', '.join(trusted)}"


# ---- the coordinator


def _coordinator(kit: Kit) -> Found:
    """Try to reach the coordinator, as the site would."""
    place = f"{kit.host}:{kit.port}"
    if any(os.environ.get(name) for name in _PROXIES):
        yield (
            "warning",
            "a proxy is set in the environment, and is not used: this site needs a direct "
            f"connection to {place}",
        )
    try:
        raw = socket.create_connection((kit.host, kit.port), _PATIENCE)
    except socket.gaierror:
        yield (
            "problem",
            f"the name {kit.host} cannot be resolved: check DNS, or ask for the address",
        )
        return
    except TimeoutError:
        yield (
            "problem",
            f"{place} does not answer: a firewall drops the connection; allow outgoing TCP to it",
        )
        return
    except OSError as error:
        yield (
            "warning",
            f"no server at {place} now ({error.strerror}): it runs only while the coordinator "
            "fits; if it should, ask there, and check firewalls",
        )
        return
    yield _greeted(kit, raw, place)


def _greeted(kit: Kit, raw: socket.socket, place: str) -> tuple[Level, str]:
    """Shake hands with the coordinator's server, and see whether it holds the connection."""
    startup = kit.startup
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.check_hostname = False  # NVFLARE checks the name of the coordinator in its own way
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    with raw:
        try:
            with context.wrap_socket(raw, server_hostname=kit.host) as connection:
                connection.settimeout(_HELD)
                if not connection.recv(1):
                    return "problem", f"{place} closed the connection: it refuses this certificate"
        except TimeoutError:  # it waits for the site to speak
            pass
        except ssl.SSLCertVerificationError as error:
            return (
                "problem",
                f"{place} shows a certificate that is not of this consortium, or not valid by this "
                f"clock ({error.verify_message}): something else listens there, or intercepts TLS",
            )
        except (ssl.SSLError, OSError) as error:
            return "problem", f"{place} refuses this site's certificate ({error})"
    return "ok", f"{place} answers, and both certificates are accepted"


# ---- what is lent


def _policy(data: SiteData | None) -> Found:
    if data is None:
        yield "warning", "nothing has been lent yet: give --data and --policy to check them"
        return
    policy = data.read_policy()
    where = data.policy or "the default one"
    yield "ok", f"{where}: at least {policy.minimum_images} images, at most {policy.fits} fits"
    if not policy.secure_sum:
        yield "warning", "secure_sum is false: sums of this site alone may leave it"


def _images(data: SiteData | None) -> Found:
    if data is None:
        return
    images = data.open_images()
    images.check(for_fit=True)
    data.read_policy().check_images(len(images))
    yield "ok", f"{len(images)} images can be read"
    if remark := remark_on_brightness(images.typical):
        yield "warning", remark
