"""A cluster of real processes on this machine, and folders of small images."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from anamorph.cluster import connect
from tests.cli.conftest import anamorph, anamorph_process, blobs  # noqa: F401 (fixtures)

N_IMAGES = 11  # a prime number: no partitions of one size
OPTIONS = {
    "n_components": 2,
    "n_iter": 3,
    "n_threads": 1,
    "shape_penalty": (0.01, 0.1, 1.0, 0.1, 0.1),
}
_MOST_SECONDS = 120  # some on an idle machine, and all of them on one that others use
_NO_PAGES = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


@pytest.fixture(autouse=True)
def _limit():
    """End a test that hangs."""

    def fail(*_):
        raise RuntimeError(f"the test took more than {_MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(_MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Processes:
    """A Dask scheduler and workers, each a process of its own."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._lock = threading.Lock()
        self._started = []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        self.address = self._first_address(self.scheduler, "Scheduler at:")

    def start_worker(self):
        """Start a worker with one thread; return its process."""
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny")

    def end(self):
        """Kill all processes that were started here."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()
            process.stderr.close()

    def _start(self, kind, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, *_NO_PAGES],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._started.append(process)
        if kind == "worker":  # nobody reads what it says, and it must not wait for that
            threading.Thread(target=process.stderr.read, daemon=True).start()
        return process

    def _first_address(self, process, label):
        for line in process.stderr:
            if label in line:
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return line.partition(label)[2].strip()
        raise RuntimeError("the scheduler did not start")


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """A scheduler with two workers, which stay alive in all tests."""
    started = Processes(tmp_path_factory.mktemp("cluster"))
    started.start_worker()
    started.start_worker()
    yield started
    started.end()


@pytest.fixture(scope="session")
def client(processes):
    with connect(processes.address, 30) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


@pytest.fixture
def files(tmp_path):
    """Return the files of some small images."""
    return save_images(tmp_path / "images")


def save_images(folder):
    """Write the same small images as ever to a new folder; return their files."""
    folder.mkdir()
    paths = [folder / f"image-{n:02d}.npy" for n in range(N_IMAGES)]
    for path, image in zip(paths, blobs(N_IMAGES, (12, 10)), strict=True):
        np.save(path, image)
    return paths
