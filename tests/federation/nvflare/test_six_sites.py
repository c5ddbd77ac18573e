"""A consortium of six: one site is killed, one revoked, one returns, and there is a model."""

from __future__ import annotations

import time

import psutil
import pytest

pytest.importorskip("nvflare")

from anamorph import ShapeAppearanceModel
from anamorph.federation.nvflare.members import MEMBERS
from anamorph.federation.nvflare.membership import update
from anamorph.federation.nvflare.provision import revoke
from tests.federation.nvflare.hospitals import PATIENCE, Hospitals, kill, wait_until
from tests.federation.nvflare.test_refusals import refusals_at_the_coordinator, refused

pytestmark = [pytest.mark.slow, pytest.mark.long]

SIZES = {"berlin": 5, "london": 6, "madrid": 5, "oslo": 7, "paris": 5, "rome": 6}
POLICY = "minimum_images = 4\nroster_changes = 2\nweighted_sums_per_image = 5\n"
N_ITER = 20


@pytest.fixture
def six(tmp_path):
    running = Hospitals(tmp_path, POLICY, SIZES)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def processes_of(hospitals):
    """Return the processes that have anything to do with a consortium."""
    place = str(hospitals.folder)
    found = []
    for process in psutil.process_iter():
        try:
            if any(place in argument for argument in process.cmdline()):
                found.append(process)
        except psutil.Error:  # it has ended
            continue
    return found


def test_a_fit_of_six_sites_outlives_a_death_a_revocation_and_a_return(six, tmp_path):
    output = tmp_path / "model.safetensors"
    driver = six.fit(output, "--iterations", N_ITER, "--go-on", "--patience", 1)

    def rosters():
        return [event["sites"] for event in six.events() if event["kind"] == "began"]

    def is_given_up():
        return "Waiting for paris" in output.with_suffix(".txt").read_text()

    wait_until(lambda: any(event["kind"] == "iteration" for event in six.events()), "an iteration")
    kill(six.processes["paris"])
    revoke(six.consortium, "rome")
    for name in SIZES:
        if name not in ("paris", "rome"):
            update(six.kits[name].folder, six.consortium / MEMBERS)
    wait_until(is_given_up, "waiting for paris")
    time.sleep(2)  # longer than the coordinator's patience
    assert driver.poll() is None
    # The server that still runs does not let the revoked site in again.
    rome = six.kits["rome"].startup
    assert refused(six.port, rome / "rootCA.pem", rome / "client.crt")
    assert "rome was revoked" in refusals_at_the_coordinator(six)
    six.start("paris")
    update(six.kits["paris"].folder, six.consortium / MEMBERS)

    assert driver.wait(4 * PATIENCE) == 0, output.with_suffix(".txt").read_text()
    remaining = sorted(SIZES.keys() - {"rome"})
    without = [name for name in remaining if name != "paris"]
    assert rosters()[0] == sorted(SIZES)
    assert rosters()[-2:] == [without, remaining]
    model = ShapeAppearanceModel.load(output)
    assert model.n_iter_ == N_ITER
    assert model.origin_.n_images == sum(SIZES[name] for name in remaining)

    # Nothing is left behind: no process, no copy of images, no checkpoint.
    six.stop()
    wait_until(lambda: not processes_of(six), "the end of all processes")
    assert not any(six.temporary.iterdir())
    assert not (tmp_path / "model.checkpoint").exists()
