"""Hospitals on this computer: real processes, real certificates, ports of the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from anamorph.federation.nvflare.consortium import Consortium
from anamorph.federation.site.holdings import seed_of_site
from anamorph.latents import starting_latents
from examples.federation.rehearsal import rehearse

SIZES = {"london": 10, "paris": 11, "rome": 13}
# For a machine with other things to do: nothing here takes as long on an idle one.
PATIENCE = 120.0


class Hospitals:
    """A consortium of sites, by default three, each with a folder of pictures."""

    def __init__(self, folder: Path, policy: str = "", sizes: dict[str, int] = SIZES) -> None:
        self.sizes = sizes
        self.folder, self.pictures = folder, folder / "pictures"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.port = free_port()
        consortium = Consortium("trio", "localhost", self.port, tuple(sizes))
        self.coordinator, *sites = rehearse(consortium, folder / "kits")
        self.consortium = folder / "kits" / "consortium"
        self.kits = {kit.name: kit for kit in sites}
        self.policy = folder / "policy.toml"
        self.policy.write_text(policy)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        draw_pictures(self.pictures, sizes)
        for name, kit in self.kits.items():
            kit.work.mkdir(exist_ok=True)
            (kit.work / "secret").write_bytes(secret(name))

    def starting_latents(self, n_latents: int, seed: int = 0) -> np.ndarray:
        """Return the latents of all images at the start, which only this test can know."""
        return np.concatenate(
            [
                starting_latents(
                    seed_of_site(seed, secret(name)),
                    [f"{name}/{number:02d}" for number in range(size)],
                    n_latents,
                )
                for name, size in self.sizes.items()
            ]
        )

    # ---- sites

    def start(self, *names: str) -> None:
        for name in names or self.sizes:
            self.processes[name] = self.run(
                "site", "start", self.kits[name].folder, "--data", self.pictures / name,
                "--policy", self.policy, "--threads", 1,
                "--participants", self.pictures / f"{name}.tsv",
                "--column", "diagnosis", "--column", "weight",
                output=self.folder / f"{name}.txt",
            )  # fmt: skip

    def n_connections(self, name: str) -> int:
        """Return how often a site has said that it is connected."""
        return (self.folder / f"{name}.txt").read_text().count("Connected to the coordinator")

    def stop(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            process.wait(PATIENCE)

    def job_process(self, name: str) -> psutil.Process:
        """Return the process of the job that a site takes part in."""
        (job,) = psutil.Process(self.processes[name].pid).children()
        return job

    # ---- the coordinator

    def fit(self, output: Path, *options: object) -> subprocess.Popen[bytes]:
        return self.run(
            "federation", "fit", self.coordinator.folder, "-o", output, "-k", 2, "--threads", 1,
            "--patience", PATIENCE, *options, output=output.with_suffix(".txt"),
        )  # fmt: skip

    def statistics(self, model: Path, output: Path, *options: object) -> subprocess.Popen[bytes]:
        return self.run(
            "federation", "statistics", self.coordinator.folder, model, "-o", output,
            "--patience", PATIENCE, *options, output=output.with_suffix(".txt"),
        )  # fmt: skip

    def run(self, *arguments: object, output: Path) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(self.temporary),
        }
        with output.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "anamorph", *map(str, arguments)],
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def events(self) -> list[dict[str, object]]:
        path = self.coordinator.work / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def secret(name: str) -> bytes:
    """Return the secret of a site, which is random elsewhere."""
    return name.encode().ljust(32)


def diagnosis(number: int) -> str:
    return "case" if number % 2 else "control"


def weight(number: int) -> int:
    return 1 + number // 2 % 2


def draw_pictures(folder: Path, sizes: dict[str, int]) -> None:
    """Draw blurred discs, of 12 x 10 pixels, in a folder for each site, with a table of them."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:12, :10]
    for name, n_images in sizes.items():
        (folder / name).mkdir(parents=True)
        write_table(folder / f"{name}.tsv", n_images)
        for number in range(n_images):
            centre, radius = random.normal((5.5, 4.5), 0.7), random.normal(3, 0.4)
            distance = np.hypot(rows - centre[0], columns - centre[1])
            disc = 1 / (1 + np.exp(2 * (distance - radius))) + random.normal(0, 0.02, rows.shape)
            picture = Image.fromarray(np.uint8(255 * np.clip(disc, 0, 1)))
            picture.save(folder / name / f"{number:02d}.png")


def write_table(path: Path, n_images: int) -> None:
    """Write what a site knows of its pictures."""
    lines = ["participant_id\tdiagnosis\tweight"]
    lines += [f"{n:02d}\t{diagnosis(n)}\t{weight(n)}" for n in range(n_images)]
    path.write_text("\n".join(lines) + "\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def wait_until(condition, what: str, seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.05)


def kill(process: psutil.Process | subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
