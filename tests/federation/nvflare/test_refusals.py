"""Who is not let in, and what is not run: against a real server and real sites."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("nvflare")

from anamorph import ShapeAppearanceModel
from anamorph.federation import ConsortiumError
from anamorph.federation.nvflare.accepted import accept
from anamorph.federation.nvflare.hardening import SITE_PROGRAM, write_job
from anamorph.federation.nvflare.job import Job, Watch
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.members import MEMBERS
from anamorph.federation.nvflare.membership import join, update
from anamorph.federation.nvflare.processes import end_coordinator, start_coordinator
from anamorph.federation.nvflare.provision import revoke, sign_requests
from anamorph.federation.nvflare.request import StatisticsRequest, write_request
from anamorph.federation.nvflare.session import Session
from anamorph.federation.site.audit import AuditLog
from examples.federation.rehearsal import rehearse
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


def greeted(port: int, authority: Path, certificate: Path | None, seconds: float = 3) -> bool:
    """Tell whether somebody who listens holds a connection of someone with a certificate."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    raw = socket.create_connection(("localhost", port), timeout=PATIENCE)
    try:
        connection = context.wrap_socket(raw, server_hostname="localhost")
    except (ssl.SSLError, ConnectionError):
        return False
    with connection:
        connection.settimeout(seconds)
        try:
            return bool(connection.recv(1))
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            return False


def refused(port: int, authority: Path, certificate: Path | None) -> bool:
    """Tell whether somebody who listens ends a connection, however long that takes."""
    return not greeted(port, authority, certificate, PATIENCE)


def refusals_at_the_coordinator(hospitals) -> str:
    path = hospitals.coordinator.work / "refusals.jsonl"
    return path.read_text() if path.exists() else ""


def audited(hospitals, name: str) -> str:
    """Return the texts of all refusals and warnings in the audit log of a site."""
    lines = AuditLog(hospitals.kits[name].audit_log).read()
    return "\n".join(
        line.get("text", "") for line in lines if line["event"] in ("refused", "warned")
    )


def eve_of(hospitals, folder: Path, name: str) -> Kit:
    """Make a kit whose certificate the authority has signed behind everyone's back."""
    consortium = shutil.copytree(hospitals.consortium, folder / "consortium")
    request = join(folder / "kit", name)
    if name in SIZES:
        revoke(consortium, name)
    sign_requests(consortium, [request.path], may_add=True)
    update(folder / "kit", consortium / MEMBERS)
    for other, kit in hospitals.kits.items():
        if other != name:
            accept(folder / "kit", other, kit.members().fingerprints()[other])
    return open_kit(folder / "kit", as_site=True)


def start_site(hospitals, kit: Kit, output: Path):
    pictures = hospitals.pictures / (kit.name if kit.name in SIZES else "london")
    return hospitals.run(
        "site", "start", kit.folder, "--data", pictures, "--policy", hospitals.policy,
        "--threads", 1, output=output,
    )  # fmt: skip


@contextmanager
def away(hospitals, session, name: str) -> Iterator[None]:
    """Stop a site for a while."""
    hospitals.processes[name].terminate()
    hospitals.processes[name].wait(PATIENCE)
    n_before = hospitals.n_connections(name)
    try:
        yield
    finally:
        hospitals.start(name)
        wait_until(lambda: hospitals.n_connections(name) > n_before, "coming back")


def wait_for_connection(output: Path) -> None:
    """Wait until a site that was started with an output file is connected."""
    wait_until(lambda: "Connected to the coordinator" in output.read_text(), "connecting")


def run_job(hospitals, session, folder: Path) -> None:
    """Ask all sites for statistics, which their policy does not list."""
    model = folder / "model.safetensors"
    images = np.random.default_rng(0).random((4, 12, 10))
    ShapeAppearanceModel(2, n_iter=0, n_threads=1).fit(images).save(model)
    request = StatisticsRequest(str(model), str(folder / "statistics.tsv"), ["all"])
    write_request(request, hospitals.coordinator)
    job = Job(hospitals.coordinator, session, list(SIZES), Watch(str, dict))
    policy = hospitals.policy.read_text()
    hospitals.policy.write_text(policy + 'questions = ["moments"]\n')
    try:
        job.follow(lambda: True)
    finally:
        hospitals.policy.write_text(policy)


def test_only_a_certificate_of_the_consortium_opens_the_door(session, hospitals, tmp_path):
    foreign = rehearse(TRIO, tmp_path / "others")[1].startup / "client.crt"
    authority = hospitals.coordinator.startup / "rootCA.pem"
    member = hospitals.kits["london"].startup / "client.crt"
    assert greeted(hospitals.port, authority, member)
    assert refused(hospitals.port, authority, None)
    assert refused(hospitals.port, authority, foreign)
    for reason in (
        "it showed no certificate",
        "its certificate is not one of this consortium's authority",
    ):  # told by the server, a moment after it has hung up
        wait_until(lambda told=reason: told in refusals_at_the_coordinator(hospitals), reason)


def test_who_says_nothing_keeps_nobody_out(session, hospitals):
    with socket.create_connection(("localhost", hospitals.port)):
        authority = hospitals.coordinator.startup / "rootCA.pem"
        assert greeted(hospitals.port, authority, hospitals.kits["london"].startup / "client.crt")


def test_a_site_that_is_not_in_the_consortium_is_refused(session, hospitals, tmp_path):
    eve = eve_of(hospitals, tmp_path, "eve")
    process = start_site(hospitals, eve, tmp_path / "eve.txt")
    try:
        wait_until(
            lambda: (
                "eve is not a site of this consortium" in refusals_at_the_coordinator(hospitals)
            ),
            "a refusal",
        )
        assert session.connected() == set(SIZES)
        wait_until(
            lambda: "does not accept this certificate" in (tmp_path / "eve.txt").read_text(),
            "a word at the site",
        )
        assert "does not accept this certificate" in eve.audit_log.read_text()
        assert process.wait(PATIENCE) == 1
        assert (
            "error: no connection (the coordinator refused eve"
            in (tmp_path / "eve.txt").read_text()
        )
    finally:
        process.terminate()
        process.wait()


def test_a_false_coordinator_is_told_at_the_site(hospitals, tmp_path):
    """Somebody answers at the coordinator's address, with a certificate of another authority."""
    false = rehearse(TRIO, tmp_path / "others")[0].startup
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(false / "server.crt", false / "server.key")
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        site = rehearse(replace(TRIO, port=port), tmp_path / "kits")[1]

        def greet():
            with contextlib.suppress(OSError):  # the end of the test
                while True:
                    with contextlib.suppress(ssl.SSLError, ConnectionError):
                        context.wrap_socket(listener.accept()[0], server_side=True).close()

        threading.Thread(target=greet, daemon=True).start()
        process = start_site(hospitals, site, tmp_path / "site.txt")
        told = f"No secure connection with localhost:{port}: its certificate is not one of"
        wait_until(lambda: told in (tmp_path / "site.txt").read_text(), "a word at the site")
        process.terminate()
        process.wait(PATIENCE)
        listener.shutdown(socket.SHUT_RDWR)
    assert told in site.audit_log.read_text()


# ---- at the loopback


def test_nobody_else_joins_the_processes_of_a_site(session, hospitals, tmp_path):
    """Finding 7: the port through which the processes of a site talk."""
    london, paris = hospitals.kits["london"], hospitals.kits["paris"]
    sockets = psutil.Process(hospitals.processes["london"].pid).net_connections("tcp")
    (place,) = [entry.laddr for entry in sockets if entry.status == psutil.CONN_LISTEN]
    assert place.ip == "127.0.0.1"
    foreign = rehearse(TRIO, tmp_path / "others")[1].startup / "client.crt"
    authority = london.startup / "rootCA.pem"
    assert greeted(place.port, authority, london.startup / "client.crt")
    assert refused(place.port, authority, None)
    assert refused(place.port, authority, foreign)
    assert refused(place.port, authority, paris.startup / "client.crt")
    with socket.create_connection(("localhost", place.port), timeout=5) as plain:
        plain.sendall(b"x" * 64)
        with contextlib.suppress(ConnectionError):
            plain.recv(100)  # an alert, perhaps
            assert plain.recv(1) == b""
    for reason in (
        "it showed no certificate",
        "its certificate is not one of this consortium's authority",
        "only this site's own processes connect here, not paris",
        "it did not speak TLS",
    ):  # told by threads of their own, a moment after they have hung up
        wait_until(lambda told=reason: told in audited(hospitals, "london"), reason)


# ---- one identity, one site


def test_a_second_start_with_the_same_kit_is_refused(hospitals, tmp_path):
    second = start_site(hospitals, hospitals.kits["london"], tmp_path / "second.txt")
    assert second.wait(PATIENCE) == 1
    pid = hospitals.processes["london"].pid
    assert f"running already with this kit (process {pid})" in (tmp_path / "second.txt").read_text()
    assert "a second start of london with this kit" in audited(hospitals, "london")


def test_a_copied_kit_is_refused_while_the_original_runs(session, hospitals, tmp_path):
    shutil.copytree(hospitals.kits["london"].folder, tmp_path / "copy")
    copy = open_kit(tmp_path / "copy", as_site=True)
    process = start_site(hospitals, copy, tmp_path / "copy.txt")
    assert process.wait(PATIENCE) == 1
    assert "another london is running" in (tmp_path / "copy.txt").read_text()
    assert "another london is running" in copy.audit_log.read_text()
    assert "london is running already" in refusals_at_the_coordinator(hospitals)
    assert session.connected() == set(SIZES)
    with pytest.raises(ConsortiumError, match="question 'statistics' is not answered here"):
        run_job(hospitals, session, tmp_path)  # the original takes part, and learns of it
    assert "london is running already: a second site of that name" in audited(hospitals, "london")


def test_a_copied_kit_with_a_fresh_ledger_is_refused_by_the_others(session, hospitals, tmp_path):
    """Finding 7, with the original out of the way, so that the coordinator lets the copy in."""
    if not (hospitals.kits["paris"].work / "met.json").exists():
        with pytest.raises(ConsortiumError):
            run_job(hospitals, session, tmp_path)  # the others have met the original
    shutil.copytree(hospitals.kits["london"].folder, tmp_path / "copy")
    copy = open_kit(tmp_path / "copy", as_site=True)
    shutil.rmtree(copy.work)
    with away(hospitals, session, "london"):
        process = start_site(hospitals, copy, tmp_path / "copy.txt")
        wait_for_connection(tmp_path / "copy.txt")
        with pytest.raises(ConsortiumError, match="refuses: london does not continue the"):
            run_job(hospitals, session, tmp_path)
        process.terminate()
        process.wait(PATIENCE)
    for name in ("paris", "rome"):
        assert "london does not continue the" in audited(hospitals, name)


def test_who_holds_the_authority_cannot_be_a_site(session, hospitals, tmp_path):
    """Finding 3: the authority signs a key of its own as that of Paris, and runs it."""
    eve = eve_of(hospitals, tmp_path, "paris")
    genuine = (hospitals.coordinator.folder / MEMBERS).read_text()
    with away(hospitals, session, "paris"):
        shutil.copy(tmp_path / "consortium" / MEMBERS, hospitals.coordinator.folder / MEMBERS)
        try:
            # London is given the forged file, too; Rome is not.
            changes = update(hospitals.kits["london"].folder, tmp_path / "consortium" / MEMBERS)
            assert any("paris is shown with another key" in line for line in changes)
            process = start_site(hospitals, eve, tmp_path / "eve.txt")
            wait_for_connection(tmp_path / "eve.txt")
            with pytest.raises(ConsortiumError, match=r"(london|rome) refuses: .* paris is"):
                run_job(hospitals, session, tmp_path)
            process.terminate()
            process.wait(PATIENCE)
        finally:
            for kit in (hospitals.coordinator, hospitals.kits["london"]):
                (kit.folder / MEMBERS).write_text(genuine)
    assert "certificate of paris is for another key" in audited(hospitals, "london")
    assert "claims to come from paris is not signed by it" in audited(hospitals, "rome")


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
    with pytest.raises(ConsortiumError, match="question 'statistics' is not answered here"):
        run_job(hospitals, session, tmp_path)
    assert not (tmp_path / "statistics.tsv").exists()


def test_a_site_with_too_few_images_does_not_start(hospitals, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("minimum_images = 11\n")
    site = hospitals.run(
        "site", "start", hospitals.kits["london"].folder, "--data", hospitals.pictures / "london",
        "--policy", policy, output=tmp_path / "site.txt",
    )  # fmt: skip
    assert site.wait(PATIENCE) == 1
    assert "fewer images than the 11" in (tmp_path / "site.txt").read_text()
