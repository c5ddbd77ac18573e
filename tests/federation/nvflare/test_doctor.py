"""What 'anamorph site doctor' finds, and what it says to do."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("nvflare")

from anamorph.federation.nvflare import accepted, doctor
from anamorph.federation.nvflare.consortium import Consortium
from anamorph.federation.nvflare.doctor import examine
from anamorph.federation.nvflare.kit import open_kit, write_json
from anamorph.federation.nvflare.members import MEMBERS
from anamorph.federation.nvflare.membership import join, renew, update
from anamorph.federation.nvflare.processes import locked_site
from anamorph.federation.nvflare.provision import revoke, sign_requests
from anamorph.federation.nvflare.site_data import SiteData, read_site_data
from examples.federation.rehearsal import rehearse
from tests.federation.nvflare.hospitals import free_port

SITES = ("london", "paris", "rome")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor") / "kits"
    rehearse(Consortium("trio", "localhost", free_port(), SITES), folder)
    return folder


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "kits")


def found(place, check, data=None, name="london"):
    """Return the levels and the joined text of what one check found."""
    entries = [entry for entry in examine(place / name, data) if entry.check == check]
    return {entry.level for entry in entries}, " / ".join(entry.text for entry in entries)


def lend(folder, n_images=4):
    """Return a few pictures as a site lends them."""
    (folder / "pictures").mkdir()
    files = []
    for number in range(n_images):
        path = folder / "pictures" / f"{number}.png"
        Image.fromarray(np.arange(30, dtype=np.uint8).reshape(6, 5) * (number + 1)).save(path)
        files.append([str(path)])
    return SiteData(files, "gaussian")


def test_a_site_scales_its_images_as_it_was_told(made, tmp_path):
    kit = open_kit(shutil.copytree(made, tmp_path / "kits") / "london", as_site=True)
    files = []
    for number, brightness in enumerate((1, 50, 3000)):
        path = tmp_path / f"{number}.npy"
        np.save(path, brightness * np.arange(1, 31, dtype=np.float32).reshape(6, 5))
        files.append([str(path)])
    SiteData(files, "gaussian", scale="robust").write(kit)
    images = read_site_data(kit).open_images()
    assert images.format.scale == "robust"  # compared with that of other sites
    first, *others = images.read(slice(None))
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)


def test_a_healthy_site_has_no_problem(place, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("minimum_images = 3\n")
    data = SiteData(lend(tmp_path).files, "gaussian", policy=str(policy))
    findings = examine(place / "london", data)
    assert {entry.level for entry in findings} <= {"ok", "warning"}
    assert [entry.check for entry in findings if entry.level == "warning"] == ["coordinator"]
    assert all("\n" not in entry.text for entry in findings)


def test_no_kit_and_an_unfinished_one(tmp_path):
    assert found(tmp_path, "kit", name="") == (
        {"problem"},
        f"{tmp_path} is not a kit: 'anamorph site join' makes that of a site, 'anamorph "
        "federation provision' that of the coordinator",
    )
    join(tmp_path / "london", "london")
    levels, text = found(tmp_path, "kit")
    assert levels == {"problem"}
    assert "is not finished: send london.csr" in text


def test_a_key_that_others_may_read(place):
    key = place / "london" / "startup" / "client.key"
    key.chmod(0o644)
    levels, text = found(place, "key")
    assert levels == {"problem"}
    assert f"chmod 600 {key.resolve()}" in text


def test_certificates_that_end_or_ended(place):
    consortium, request = place / "consortium", renew(place / "london").path
    for days, level, words in (
        (20, "warning", "renew' now"),
        (1e-6, "problem", "expired on"),
    ):
        sign_requests(consortium, [request], days=days)
        update(place / "london", consortium / MEMBERS)
        levels, text = found(place, "certificate")
        assert levels == {level}
        assert words in text
    revoke(consortium, "london")
    update(place / "london", consortium / MEMBERS)
    assert "was revoked" in found(place, "certificate")[1]


def test_sites_that_are_not_accepted(place):
    accepted.withdraw(place / "london", "paris")
    levels, text = found(place, "accepted sites")
    assert levels == {"warning", "problem"}
    assert "paris is not accepted at london" in text
    assert "masked sums need 3" in text


def test_clocks(place, monkeypatch):
    kit = open_kit(place / "london", as_site=True)
    write_json(kit.work / "clock.json", {"ahead": 200.0, "measured": time.time()})
    assert found(place, "clock")[0] == {"warning"}
    write_json(kit.work / "clock.json", {"ahead": -1.0, "measured": time.time()})
    assert found(place, "clock") == (
        {"ok"},
        "the coordinator's was -1.0 s from this one, 0 days ago",
    )

    class Yesterday(doctor.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) - doctor.timedelta(days=1)

    monkeypatch.setattr(doctor, "datetime", Yesterday)
    levels, text = found(place, "clock")
    assert levels == {"problem"}
    assert "before the members file was issued" in text


def test_little_space(place, monkeypatch):
    for free, level in ((5e8, "problem"), (5e9, "warning"), (5e10, "ok")):
        usage = shutil.disk_usage(place)._replace(free=free)
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path, usage=usage: usage)
        assert found(place, "disk")[0] == {level}


def test_latents_of_earlier_fits(place):
    folder = place / "london" / "work" / "fits" / "abc"
    folder.mkdir(parents=True)
    (folder / "latents").write_bytes(bytes(2_000_000))
    levels, text = found(place, "old fits")
    assert levels == {"warning"}
    assert "latents of 1 fits (2.0 MB)" in text


def test_a_site_that_runs(place):
    assert "is not running" in found(place, "running")[1]
    with locked_site(open_kit(place / "london", as_site=True)):
        assert found(place, "running")[1] == "the site is running"


def test_policies_and_images_that_are_wrong(place, tmp_path):
    policy = tmp_path / "policy.toml"
    data = SiteData(lend(tmp_path).files, "gaussian", policy=str(policy))
    assert "cannot be read" in found(place, "policy", data)[1]
    policy.write_text("minimum_images = 5\nsecure_sum = false\n")
    assert found(place, "policy", data)[0] == {"ok", "warning"}
    assert "fewer images than the 5" in found(place, "images", data)[1]
    policy.write_text("minimum_images = 1\n")
    assert found(place, "images", data) == ({"ok"}, "4 images can be read")
    (tmp_path / "pictures" / "2.png").write_text("no picture")
    levels, text = found(place, "images", data)
    assert levels == {"problem"}
    assert "2.png" in text


# ---- the coordinator


@contextmanager
def serving(place, certificate, authority):
    """Listen where the coordinator should, with some certificate, and ask for one."""
    kit = open_kit(place / "london", as_site=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("localhost", kit.port)) as listener:
        listener.settimeout(60)

        def greet():
            raw, _ = listener.accept()
            try:
                with context.wrap_socket(raw, server_side=True) as connection:
                    connection.recv(1)
            except (ssl.SSLError, OSError):
                raw.close()

        thread = threading.Thread(target=greet)
        thread.start()
        yield
        thread.join()


def test_a_coordinator_that_is_there(place):
    startup = place / "consortium" / "coordinator" / "startup"
    with serving(place, startup / "server.crt", startup / "rootCA.pem"):
        levels, text = found(place, "coordinator")
    assert levels == {"ok"}
    assert "both certificates are accepted" in text


def test_a_stranger_in_place_of_the_coordinator(place, tmp_path):
    other = Consortium("other", "localhost", 8002, SITES)
    startup = rehearse(other, tmp_path / "other")[0].startup
    with serving(place, startup / "server.crt", startup / "rootCA.pem"):
        levels, text = found(place, "coordinator")
    assert levels == {"problem"}
    assert "not of this consortium" in text


def test_a_coordinator_that_does_not_know_this_site(place, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_HELD", 60.0)  # it refuses long before, on any machine
    startup = place / "consortium" / "coordinator" / "startup"
    other = Consortium("other", "localhost", 8002, SITES)
    foreign = rehearse(other, tmp_path / "other")[0].startup
    with serving(place, startup / "server.crt", foreign / "rootCA.pem"):
        levels, text = found(place, "coordinator")
    assert levels == {"problem"}
    assert "refuses this site's certificate" in text


def test_hosts_that_do_not_exist_and_proxies(place, monkeypatch):
    def fail(*arguments):
        raise socket.gaierror

    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setattr(doctor.socket, "create_connection", fail)
    levels, text = found(place, "coordinator")
    assert levels == {"warning", "problem"}
    assert "a proxy is set" in text
    assert "cannot be resolved" in text

    def drop(*arguments):
        raise TimeoutError

    monkeypatch.setattr(doctor.socket, "create_connection", drop)
    assert "allow outgoing TCP" in found(place, "coordinator")[1]
