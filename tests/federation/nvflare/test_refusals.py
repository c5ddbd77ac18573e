"""Who is not let in, and what is not run: against a real server and real sites."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.lighter.utils import (
    Identity,
    generate_cert,
    generate_keys,
    load_private_key_file,
    serialize_cert,
    serialize_pri_key,
)

from anamorph import ShapeAppearanceModel
from anamorph.federation import ConsortiumError
from anamorph.federation.nvflare.hardening import SITE_PROGRAM, write_job
from anamorph.federation.nvflare.job import Job, Watch
from anamorph.federation.nvflare.processes import end_coordinator, start_coordinator
from anamorph.federation.nvflare.provision import provision
from anamorph.federation.nvflare.request import StatisticsRequest, write_request
from anamorph.federation.nvflare.session import Session
from tests.federation.nvflare.hospitals import PATIENCE, SIZES, wait_until
from tests.federation.nvflare.test_consortium import TRIO

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(hospitals):
    """A session with a server that all sites are connected to."""
    server = start_coordinator(hospitals.coordinator)
    session = None
    try:
        session = Session(hospitals.coordinator, PATIENCE)
        wait_until(lambda: session.connected() == set(SIZES), "connecting")
        yield session
    finally:
        if session is not None:
            session.close()
        end_coordinator(server)


# ---- at the door


def greeted(hospitals, certificate: Path | None) -> bool:
    """Tell whether the server holds a connection of someone with a certificate."""
    context = ssl.create_default_context(cafile=str(hospitals.coordinator.startup / "rootCA.pem"))
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    raw = socket.create_connection(("localhost", hospitals.port), timeout=3)
    try:
        with context.wrap_socket(raw, server_hostname="localhost") as connection:
            return bool(connection.recv(1))
    except TimeoutError:
        return True
    except (ssl.SSLError, ConnectionError):
        return False


def test_only_a_certificate_of_the_consortium_opens_the_door(session, hospitals, tmp_path):
    foreign = provision(TRIO, tmp_path / "others")[1].startup / "client.crt"
    assert greeted(hospitals, hospitals.kits["london"].startup / "client.crt")
    assert not greeted(hospitals, None)
    assert not greeted(hospitals, foreign)


def test_a_site_that_is_not_in_the_consortium_is_refused(session, hospitals, tmp_path):
    run_as_eve(hospitals, tmp_path / "eve")
    log = hospitals.coordinator.folder / "log.txt"
    eve = hospitals.run(
        "site", "start", tmp_path / "eve", "--data", hospitals.pictures / "london",
        output=tmp_path / "eve.txt",
    )  # fmt: skip
    try:
        wait_until(lambda: "eve is not a site of this consortium" in log.read_text(), "a refusal")
        assert session.connected() == set(SIZES)
        assert eve.wait(PATIENCE) == 1
        assert "error: no connection" in (tmp_path / "eve.txt").read_text()
    finally:
        eve.kill()
        eve.wait()


def run_as_eve(hospitals, folder: Path) -> None:
    """Make a kit whose certificate is of the consortium's authority, for somebody else."""
    shutil.copytree(hospitals.kits["london"].folder, folder)
    authority = hospitals.folder / "kits" / "authority" / "authority.key"
    private, public = generate_keys()
    certificate = generate_cert(
        Identity("eve", "eve"), Identity("trio"), load_private_key_file(authority), public
    )
    (folder / "startup" / "client.crt").write_bytes(serialize_cert(certificate))
    (folder / "startup" / "client.key").write_bytes(serialize_pri_key(private))
    for path, key in ((folder / "kit.json", "name"), (folder / "startup/fed_client.json", "fqsn")):
        text = path.read_text().replace(f'"{key}": "london"', f'"{key}": "eve"')
        path.write_text(text.replace('"london",', '"eve",') if key == "name" else text)


# ---- jobs


def outcome(session, job: Path) -> str:
    """Submit a job; return where it ended, or the refusal to take it."""
    try:
        name = session._session.submit_job(str(job))
    except Exception as error:
        return f"refused: {error}"
    wait_until(lambda: session.status(name).startswith("FINISHED"), "the end of the job")
    return str(session._session.get_job_meta(name))


def test_a_job_that_ships_code_does_not_run(session, hospitals, tmp_path):
    marker = tmp_path / "ran"
    write_job(tmp_path / "job", list(SIZES))
    custom = tmp_path / "job" / "app" / "custom" / "anamorph_extra.py"
    custom.parent.mkdir()
    custom.write_text(f"open({str(marker)!r}, 'w').close()\n\n\nclass Extra:\n    pass\n")
    name_class(tmp_path / "job", "anamorph_extra.Extra")
    ended = outcome(session, tmp_path / "job")
    assert "COMPLETED" not in ended
    assert "byoc" in ended.lower()
    assert not marker.exists()


def test_a_class_that_is_not_on_the_list_is_not_made(session, hospitals, tmp_path):
    marker = tmp_path / "ran"
    write_job(tmp_path / "job", list(SIZES))
    name_class(tmp_path / "job", "subprocess.Popen", {"args": ["touch", str(marker)]})
    assert "COMPLETED" not in outcome(session, tmp_path / "job")
    time.sleep(1)
    assert not marker.exists()


def name_class(job: Path, path: str, arguments: object = None) -> None:
    """Let a job name another class than the site's program."""
    config = job / "app" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    (component,) = content["components"]
    assert component["path"] == SITE_PROGRAM
    component |= {"path": path, "args": arguments or {}}
    config.write_text(json.dumps(content))


# ---- policies


def test_statistics_that_the_policy_does_not_list_are_refused(session, hospitals, tmp_path):
    model, table = tmp_path / "model.safetensors", tmp_path / "statistics.tsv"
    images = np.random.default_rng(0).random((4, 12, 10))
    ShapeAppearanceModel(2, n_iter=0, n_threads=1).fit(images).save(model)
    policy = hospitals.policy.read_text()
    hospitals.policy.write_text(policy + 'questions = ["moments"]\n')
    try:
        write_request(StatisticsRequest(str(model), str(table), ["all"]), hospitals.coordinator)
        job = Job(hospitals.coordinator, session, list(SIZES), Watch(str, dict))
        with pytest.raises(ConsortiumError, match="question 'statistics' is not answered here"):
            job.follow(lambda: True)
    finally:
        hospitals.policy.write_text(policy)
    assert not table.exists()


def test_a_site_with_too_few_images_does_not_start(hospitals, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("minimum_images = 11\n")
    site = hospitals.run(
        "site", "start", hospitals.kits["london"].folder, "--data", hospitals.pictures / "london",
        "--policy", policy, output=tmp_path / "site.txt",
    )  # fmt: skip
    assert site.wait(PATIENCE) == 1
    assert "fewer images than the 11" in (tmp_path / "site.txt").read_text()
