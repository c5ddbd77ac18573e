"""Processes that die in the middle of a fit: it ends as if nothing had happened, or says why."""

import os
import signal
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.cluster import ClusterError, ClusterSites, connect, fit_on_cluster
from anamorph.storage.tables import read_latents
from tests.cluster.conftest import OPTIONS, Processes, save_images

pytestmark = pytest.mark.slow


class Sabotaged(ClusterSites):
    """A cluster on which something happens when a question is asked for, e.g., the second time."""

    question, sabotage, n_times = None, None, None

    def ask(self, question, **arguments):
        if question == self.question:
            self.count = getattr(self, "count", 0) + 1
            if self.count == self.n_times:
                self.sabotage()
        return super().ask(question, **arguments)


def fitted(client, files, folder, question=None, sabotage=None, n_times=2, **options):
    """Return a model that was fitted while something happened."""
    with ExitStack() as stack:

        def open_sites(images, settings, start):
            sites = Sabotaged(
                client, images, settings, start, folder=folder, n_partitions=3, **options
            )
            sites.question, sites.sabotage, sites.n_times = question, sabotage, n_times
            return stack.enter_context(sites)

        return ShapeAppearanceModel(**OPTIONS).fit_at(open_sites, files)


@pytest.fixture(scope="module")
def whole(client, tmp_path_factory):
    """Return the model that comes of the same images when nothing happens."""
    folder = tmp_path_factory.mktemp("whole")
    return fitted(client, save_images(folder / "images"), folder / "shared")


def check_same(model, whole):
    assert np.allclose(model.objective_, whole.objective_, rtol=1e-7, atol=0)
    assert np.allclose(model.latents_, whole.latents_, atol=1e-6)


@pytest.mark.parametrize("question", ["appearance_derivatives", "update_latents"])
def test_a_worker_that_is_killed_costs_only_its_tasks(
    processes, client, whole, files, tmp_path, question
):
    """Stopped, it is given a task, or parameters, for sure; half a second later it is killed."""
    victim = processes.start_worker()
    client.wait_for_workers(3, timeout=60)

    def kill():
        victim.send_signal(signal.SIGSTOP)
        threading.Timer(0.5, victim.kill).start()

    model = fitted(client, files, tmp_path / "shared", question, kill)
    assert victim.wait(timeout=10) == -signal.SIGKILL
    assert len(client.nthreads()) == 2
    check_same(model, whole)


@pytest.mark.long
def test_the_last_worker_is_killed_and_another_one_comes(whole, files, tmp_path):
    """Parameters that were sent are lost with it, and are sent again."""
    others = Processes(tmp_path)
    try:
        victim = others.start_worker()
        with connect(others.address) as client:
            client.wait_for_workers(1, timeout=60)

            def kill():
                victim.kill()
                others.start_worker()

            model = fitted(client, files, tmp_path / "shared", "update_latents", kill)
            assert list(client.nthreads().values()) == [1]
        check_same(model, whole)
    finally:
        others.end()


def test_a_scheduler_that_is_killed_is_named(files, tmp_path):
    others = Processes(tmp_path)
    try:
        others.start_worker()
        with connect(others.address) as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(ClusterError, match="scheduler is gone: start it") as it:
                fitted(client, files, tmp_path / "shared", "update_latents", others.scheduler.kill)
        assert "\n" not in str(it.value)
    finally:
        others.end()


@pytest.mark.long
def test_a_client_that_is_killed_goes_on_with_the_same_command(
    processes, client, files, tmp_path, anamorph_process
):
    settings = {"n_components": 2, "n_iter": 8}
    whole = fit_on_cluster(ShapeAppearanceModel(**settings), files, client, tmp_path / "shared")
    output, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.checkpoint"
    command = ("cluster", "fit", "--scheduler", processes.address, files[0].parent)
    command += ("-o", output, "-k", 2, "--iterations", 8)
    killed = anamorph_process(*command)
    try:
        while not checkpoint.exists() and killed.poll() is None:
            time.sleep(0.01)
    finally:
        killed.kill()
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path / "model.cluster") != []  # what it left is in nobody's way
    again = anamorph_process(*command)
    try:
        stdout, stderr = again.communicate(timeout=150)
    finally:
        again.kill()
    assert again.returncode == 0, stderr
    assert stderr == ""
    assert "to resume from it" in stdout
    model = ShapeAppearanceModel.load(output)
    assert model.n_iter_ == 8
    assert np.allclose(model.objective_, whole.objective_, rtol=1e-6, atol=0)
    assert np.allclose(model.mean_, whole.mean_, atol=1e-5)
    names, latents = read_latents(tmp_path / "model.latents.tsv", 2)
    assert names == [path.stem for path in files]
    assert np.allclose(latents, whole.latents_, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "model.latents.tsv",
        "model.safetensors",
    ]
    assert not (tmp_path / "model.cluster").exists()


def test_an_image_that_vanishes_stops_the_fit_and_leaves_nothing(client, files, tmp_path):
    with pytest.raises(ValueError, match=r"image-10.npy does not exist") as it:
        fitted(client, files, tmp_path / "shared", "moments", files[-1].unlink, n_times=1)
    assert "\n" not in str(it.value)
    assert not (tmp_path / "shared").exists()
