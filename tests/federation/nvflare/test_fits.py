"""Fits across real processes: the numbers of a pooled fit, whatever dies on the way."""

from __future__ import annotations

import csv
import os
import signal
import time

import numpy as np
import psutil
import pytest

pytest.importorskip("nvflare")

from anamorph import ShapeAppearanceModel
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.audit import AuditLog
from anamorph.images.readers import identities_of
from anamorph.storage.tensors import read_tensors
from tests.federation.conftest import fixed_penalties
from tests.federation.nvflare.hospitals import (
    PATIENCE,
    SIZES,
    diagnosis,
    kill,
    wait_until,
    weight,
)

pytestmark = pytest.mark.slow

N_ITER = 15


@pytest.fixture(scope="module")
def pooled(hospitals):
    """The model of a fit to the images of all sites, on one computer."""
    start = hospitals.starting_latents(2)
    model = ShapeAppearanceModel(2, n_iter=N_ITER, n_threads=1, **fixed_penalties())
    return model.fit(pictures(hospitals), start=start)


def pictures(hospitals):
    """Return the files of all sites."""
    return [path for name in SIZES for path in sorted((hospitals.pictures / name).iterdir())]


def check_same(output, pooled, tolerance):
    """Compare a model with the one of the pooled fit, which started from the same latents."""
    model = ShapeAppearanceModel.load(output)
    np.testing.assert_allclose(model.objective_, pooled.objective_, rtol=tolerance)
    assert model.origin_.n_images == sum(SIZES.values())


def finish(process):
    assert process.wait(4 * PATIENCE) == 0


def test_a_fit_has_the_numbers_of_the_pooled_fit(hospitals, pooled, tmp_path):
    output = tmp_path / "model.safetensors"
    finish(hospitals.fit(output, "--iterations", N_ITER, "--in-the-open"))
    check_same(output, pooled, 1e-5)
    # The pooled fit started from the same latents, drawn by secrets and what images are called.
    called = [f"{name}/{number:02d}" for name, size in SIZES.items() for number in range(size)]
    assert identities_of(pictures(hospitals)) == called
    assert not (tmp_path / "model.checkpoint").exists()
    for name in SIZES:
        told = (hospitals.folder / f"{name}.txt").read_text()
        assert "Connected to the coordinator" in told
        assert "The coordinator begins a job" in told


def test_poses_stay_at_the_sites(hospitals, tmp_path):
    output, start = tmp_path / "model.safetensors", hospitals.starting_latents(2, seed=21)
    finish(hospitals.fit(output, "--iterations", 2, "--align", "translation", "--seed", 21))
    options = {"align": "translation", "n_iter": 2, "n_threads": 1, "random_state": 21}
    model = ShapeAppearanceModel(2, **options, **fixed_penalties())
    check_same(output, model.fit(pictures(hospitals), start=start), 1e-5)
    for kit in hospitals.kits.values():
        states = [
            read_tensors(path, "site state", 2)[0]
            for path in (kit.work / "fits").glob("*/state-000002.safetensors")
        ]
        assert [arrays["poses"].shape[1] for arrays in states if "poses" in arrays] == [2]


def test_statistics_are_those_of_the_latents_of_all_sites(hospitals, pooled, tmp_path):
    model, table = tmp_path / "model.safetensors", tmp_path / "statistics.tsv"
    pooled.save(model)
    options = ("--group-by", "diagnosis", "--weight-by", "weight")
    finish(hospitals.statistics(model, table, *options, "--group", "control", "--group", "case"))
    numbers = np.array([number for size in SIZES.values() for number in range(size)])
    latents = ShapeAppearanceModel.load(model).transform(pictures(hospitals))
    weights = np.array([weight(number) for number in numbers])
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    kinds = ("mean", "covariance_z1", "covariance_z2")
    groups = ("control", "case")
    named = [(row["group"], row["statistic"]) for row in rows]
    assert named == [(group, kind) for group in groups for kind in kinds]
    for group in groups:
        members = np.array([diagnosis(number) == group for number in numbers])
        mean = np.average(latents[members], axis=0, weights=weights[members])
        covariance = np.cov(latents[members].T, aweights=weights[members], ddof=0)
        own = [row for row in rows if row["group"] == group]
        assert {row["n_images"] for row in own} == {str(members.sum())}
        found = np.array([[float(row["z1"]), float(row["z2"])] for row in own])
        np.testing.assert_allclose(found, [mean, *covariance], atol=1e-5)
    for name, size in SIZES.items():
        log = AuditLog(hospitals.kits[name].work / "audit.jsonl")
        answers = [line for line in log.read() if line.get("question") == "statistics"]
        assert answers
        for line in answers:
            assert line["masked"]
            assert line["n_images"] == size
            assert line["fields"]["latent_scatter"] == [2, 2, 2]


def test_private_statistics_are_those_with_noise(hospitals, pooled, tmp_path):
    """The sites add noise, and keep account of it."""
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    model, table = tmp_path / "model.safetensors", tmp_path / "private.tsv"
    pooled.save(model)
    latents = ShapeAppearanceModel.load(model).transform(pictures(hospitals))
    clip = 1.1 * np.linalg.norm(latents, axis=1).max()
    finish(hospitals.statistics(model, table, "--epsilon", 1, "--clip", clip))
    with table.open(newline="") as file:
        rows = {row["statistic"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert [*rows] == ["mean", "mean_noise", "covariance_z1", "covariance_z2"]
    mean = rows["mean"]
    size = float(mean["n_images"]) / len(latents)
    found = np.array([float(mean["z1"]), float(mean["z2"])])
    errors = np.abs(size * found - latents.mean(axis=0))
    # 3.73 times the sensitivity, sqrt(3) of the bound, and by one site more than is needed.
    noise = 3.73 * np.sqrt(3) * np.sqrt(1.5) * clip / len(latents)
    assert float(rows["mean_noise"]["z1"]) == pytest.approx(noise / size, rel=0.05)
    assert 1e-4 * noise < errors.max() < 6 * noise
    for kit in hospitals.kits.values():
        records = JsonLines(kit.work / "analyses.jsonl", "the record of analyses").read()
        (spent,) = [record for record in records if "multiplier" in record]
        assert spent["epsilon_of_year"] == pytest.approx(1, abs=0.01)


# ---- accidents


def kill_a_job(hospitals, driver):
    kill(hospitals.job_process("paris"))


def kill_a_site(hospitals, driver):
    kill(hospitals.processes["paris"])
    hospitals.start("paris")


def kill_the_server(hospitals, driver):
    kill(server_of(driver))


def kill_the_job_of_the_server(hospitals, driver):
    (job,) = server_of(driver).children()
    kill(job)


def hold_a_site_up(hospitals, driver):
    slow = hospitals.job_process("rome")
    slow.suspend()
    time.sleep(4)  # longer than it takes to ask whether it is still there
    slow.resume()


def server_of(driver):
    (server,) = psutil.Process(driver.pid).children()
    return server


def kill_the_coordinator(hospitals, driver):
    server = server_of(driver)
    kill(driver)
    wait_until(lambda: not server.is_running(), "the end of the server")


@pytest.mark.long
def test_whatever_is_killed_the_fit_ends_as_if_nothing_had_happened(hospitals, pooled, tmp_path):
    output = tmp_path / "model.safetensors"
    n_before = len(hospitals.events())
    driver = hospitals.fit(output, "--iterations", N_ITER)

    def n_told(kind):
        return sum(event["kind"] == kind for event in hospitals.events()[n_before:])

    def do_after_an_iteration(accident):
        n_iterations = n_told("iteration")
        wait_until(lambda: n_told("iteration") > n_iterations, "an iteration")
        assert driver.poll() is None, f"the fit was over before {accident.__name__}"
        accident(hospitals, driver)

    wait_until(lambda: n_told("began"), "the job")
    kill_a_job(hospitals, driver)  # before the first iteration
    for accident in (kill_a_site, hold_a_site_up, kill_the_server, kill_the_job_of_the_server):
        do_after_an_iteration(accident)
    do_after_an_iteration(kill_the_coordinator)
    assert n_told("began") == 5  # one job at first and one after each death; none for who is slow
    assert not output.exists()
    assert (tmp_path / "model.checkpoint").exists()

    n_before = len(hospitals.events())
    finish(hospitals.fit(output, "--iterations", N_ITER))  # the same command resumes
    check_same(output, pooled, 1e-4)
    assert 0 < n_told("iteration") < N_ITER
    assert n_told("began") == 1
    assert not any(hospitals.temporary.iterdir())  # no copies of images are left by those who died


@pytest.mark.long
def test_a_fit_goes_on_without_a_site_and_takes_it_back(hospitals, tmp_path):
    output, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.checkpoint"
    n_before = len(hospitals.events())
    options = ("--in-the-open", "--go-on", "--patience", 1)  # masks would need a third site
    driver = hospitals.fit(output, "--iterations", 5000, "--seed", 7, *options)

    def rosters():
        told = hospitals.events()[n_before:]
        return [event["sites"] for event in told if event["kind"] == "began"]

    wait_until(checkpoint.exists, "an iteration")
    kill(hospitals.processes["paris"])
    wait_until(lambda: ["london", "rome"] in rosters(), "going on without paris")
    hospitals.start("paris")
    wait_until(lambda: rosters()[-1] == [*SIZES] and len(rosters()) > 2, "taking paris back")
    os.kill(driver.pid, signal.SIGINT)
    assert driver.wait(PATIENCE) == 130
    assert "the same command resumes the fit" in output.with_suffix(".txt").read_text()


# ---- sites


def test_a_question_that_the_policy_does_not_list_is_refused(hospitals, tmp_path):
    output, policy = tmp_path / "model.safetensors", hospitals.policy.read_text()
    hospitals.policy.write_text(policy + 'questions = ["moments", "start_latents"]\n')
    try:
        assert hospitals.fit(output, "--iterations", 1, "--seed", 5).wait(PATIENCE) == 1
    finally:
        hospitals.policy.write_text(policy)
    text = output.with_suffix(".txt").read_text()
    assert "question 'transform_latents' is not answered here" in text
    assert not output.exists()


def test_a_site_stops_cleanly(hospitals):
    site = hospitals.processes["rome"]
    os.kill(site.pid, signal.SIGINT)
    assert site.wait(PATIENCE) == 0
    hospitals.start("rome")
