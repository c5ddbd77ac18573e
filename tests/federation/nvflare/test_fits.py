"""Fits across real processes: the numbers of a pooled fit, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import psutil
import pytest

pytest.importorskip("nvflare")

from anamorph import ShapeAppearanceModel
from tests.federation.nvflare.hospitals import PATIENCE, SIZES, kill, wait_until

pytestmark = pytest.mark.slow

N_ITER = 12


@pytest.fixture(scope="module")
def pooled(hospitals):
    """The model of a fit to the images of all sites, on one computer."""
    files = [path for name in SIZES for path in sorted((hospitals.pictures / name).iterdir())]
    return ShapeAppearanceModel(2, n_iter=N_ITER, n_threads=1).fit(files)


def check_same(output, pooled, tolerance):
    """Compare a model with the one of the pooled fit, which started from the same latents."""
    model = ShapeAppearanceModel.load(output)
    np.testing.assert_allclose(model.objective_, pooled.objective_, rtol=tolerance)
    assert model.origin_.n_images == sum(SIZES.values())


def finish(process):
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(("options", "tolerance"), [((), 1e-4), (("--in-the-open",), 1e-5)])
def test_a_fit_has_the_numbers_of_the_pooled_fit(hospitals, pooled, tmp_path, options, tolerance):
    output = tmp_path / "model.safetensors"
    finish(hospitals.fit(output, "--iterations", N_ITER, *options))
    check_same(output, pooled, tolerance)
    assert not (tmp_path / "model.checkpoint").exists()


def kill_a_job(hospitals, driver):
    kill(hospitals.job_process("paris"))
    return driver


def kill_a_site(hospitals, driver):
    kill(hospitals.processes["paris"])
    hospitals.start("paris")
    return driver


def kill_the_server(hospitals, driver):
    kill(server_of(driver))
    return driver


def kill_the_server_job(hospitals, driver):
    (job,) = server_of(driver).children()
    kill(job)
    return driver


def server_of(driver):
    (server,) = psutil.Process(driver.pid).children()
    return server


@pytest.mark.parametrize(
    "accident", [kill_a_job, kill_a_site, kill_the_server, kill_the_server_job]
)
def test_what_dies_comes_back_and_nobody_can_tell(hospitals, pooled, tmp_path, accident):
    output, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.checkpoint"
    driver = hospitals.fit(output, "--iterations", N_ITER)
    wait_until(checkpoint.exists, "an iteration")
    accident(hospitals, driver)
    assert not output.exists()
    finish(driver)
    check_same(output, pooled, 1e-4)


def test_the_same_command_goes_on_after_the_coordinator_was_killed(hospitals, pooled, tmp_path):
    output, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.checkpoint"
    driver = hospitals.fit(output, "--iterations", N_ITER)
    wait_until(checkpoint.exists, "an iteration")
    server = server_of(driver)
    kill(driver)
    wait_until(lambda: not server.is_running(), "the end of the server", 10)
    assert not output.exists()
    n_iterations = sum(event["kind"] == "iteration" for event in hospitals.events())
    finish(hospitals.fit(output, "--iterations", N_ITER))
    check_same(output, pooled, 1e-4)
    done = sum(event["kind"] == "iteration" for event in hospitals.events()) - n_iterations
    assert done < N_ITER


def test_a_slow_site_is_waited_for(hospitals, pooled, tmp_path):
    output, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.checkpoint"
    driver = hospitals.fit(output, "--iterations", N_ITER)
    wait_until(checkpoint.exists, "an iteration")
    slow = hospitals.job_process("rome")
    slow.suspend()
    time.sleep(6)
    assert driver.poll() is None
    slow.resume()
    finish(driver)
    check_same(output, pooled, 1e-4)
    assert b"beginning it again" not in output.with_suffix(".txt").read_bytes()


def test_a_site_stops_cleanly(hospitals):
    site = hospitals.processes["rome"]
    os.kill(site.pid, signal.SIGINT)
    assert site.wait(10) == 0
    hospitals.start("rome")
