"""Fits over NVFLARE with kits, as hospitals do it: time, and the peak memory of every process.

python -m benchmarks.kits digits    three sites of 100 digits against one fit to all 300
python -m benchmarks.kits blocks    70 modes at 2 mm, in all processes that hospitals would have

Certificates are made, sites and coordinator are started by their commands, sums are masked. Each
process is asked for the highest memory it ever had (of Linux), as long as it lives.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from anamorph import ShapeAppearanceModel
from anamorph.arrays.typing import Float64Array
from anamorph.datasets import digits
from anamorph.federation.nvflare.consortium import Consortium
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.site.holdings import seed_of_site
from anamorph.latents import starting_latents
from anamorph.model.presets import preset
from examples.federation.rehearsal import rehearse

NAMES = ("london", "paris", "rome")
MINIMUM_IMAGES = 4
_LOOK = 0.1  # seconds between looks at processes


def time_over_kits(n_iter: int = 20) -> None:
    """Fit 300 digits at once, and across three sites; the time includes that of starting servers.

    Parameters
    ----------
    n_iter : int
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for number, image in enumerate(digits()[0][:300]):
            rank, site = divmod(number, len(NAMES))
            (place / NAMES[site]).mkdir(exist_ok=True)
            np.save(place / NAMES[site] / f"{rank:03d}.npy", image)
        paths = [path for name in NAMES for path in sorted((place / name).iterdir())]
        model = ShapeAppearanceModel(**preset("digits") | {"n_components": 16, "n_iter": n_iter})
        start = _starting_latents(paths)
        model.fit(paths, start=start)
        started = time.perf_counter()
        model.fit(paths, start=start)
        pooled = time.perf_counter() - started
        coordinator, *sites = rehearse(_consortium(), place / "kits")
        for kit in sites:
            kit.work.mkdir(exist_ok=True)
            (kit.work / "secret").write_bytes(_secret(kit.name))
        processes = {
            kit.name: _start_site(kit, place, "--likelihood", "bernoulli") for kit in sites
        }
        options = ("--preset", "digits", "-k", 16, "--iterations", n_iter, "--json")
        try:
            started = time.perf_counter()
            processes["coordinator"] = _start_fit(coordinator, place, *options)
            _wait(processes, place)
            seconds = time.perf_counter() - started
        finally:
            _end(processes)
        result = json.loads((place / "coordinator.txt").read_text().splitlines()[-1])
    limit = 3 * pooled + 3 * n_iter
    difference = abs(result["objective"] / model.objective_[-1] - 1)
    print(f"Three sites of 100 digits, K = 16, {n_iter} iterations, over kits with masked sums")
    print(f"  pooled {pooled:.1f} s, across sites {seconds:.1f} s ({limit:.0f} s), ", end="")
    print(f"{(result['n_questions'] - 4) / n_iter:.2f} questions per iteration (6)")
    print(f"  objective differs by {difference:.1e} (1e-4)")


def _secret(site: str) -> bytes:
    """Return the secret of a site, which is random elsewhere."""
    return site.encode().ljust(32)


def _starting_latents(paths: Sequence[Path]) -> Float64Array:
    """Return the latents at the start of all sites, in the order of their files."""
    return np.concatenate(
        [
            starting_latents(seed_of_site(0, _secret(path.parent.name)), [_called(path)], 16)
            for path in paths
        ]
    )


def _called(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def memory_over_kits(space: Sequence[int], n_modes: int, n_iter: int = 1) -> None:
    """Fit volumes of two channels at three sites, and print what every process took.

    Parameters
    ----------
    space : sequence of int
        Voxels of a volume along each axis.
    n_modes : int
        Of shape and appearance; there are as few volumes as they allow.
    n_iter : int
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        coordinator, *sites = rehearse(_consortium(), place / "kits")
        n_images = max(-(-(n_modes + 1) // len(NAMES)), MINIMUM_IMAGES)
        _draw_volumes(place, space, n_images)
        processes = {
            kit.name: _start_site(kit, place, "--channel-axis", -1, "--memory", "500MB")
            for kit in sites
        }
        options = ("-k", n_modes, "--iterations", n_iter, "--steps", 2, "--voxel-size", "2,2,2")
        started = time.perf_counter()
        try:
            processes["coordinator"] = _start_fit(coordinator, place, *options)
            peaks = _watch(processes)
            _wait(processes, place)
        finally:
            _end(processes)
        seconds = time.perf_counter() - started
        sizes = [size for kit in sites for size in _answers(kit)]
        parameters = (place / "model.safetensors").stat().st_size
    print(f"{n_modes} modes of {tuple(space)}, {n_iter} iteration, 3 sites of {n_images} volumes")
    print(f"  {seconds:.0f} s, parameters of {parameters / 1e9:.2f} GB, ", end="")
    print(f"{len(sizes)} masked answers of {sum(sizes) / 1e9:.1f} GB in all, ", end="")
    print(f"at most {max(sizes) / 1e9:.2f} GB")
    for name, peak in peaks.items():
        print(f"  {name:30} {peak / 1e9:.2f} GB (3)")


def _draw_volumes(folder: Path, space: Sequence[int], n_images: int) -> None:
    """Save two-channel volumes of two overlapping blobs, (*space, 2), in a folder for each site."""
    random = np.random.default_rng(0)
    axes = np.meshgrid(*(np.linspace(-1, 1, length, dtype=np.float32) for length in space))
    positions = np.stack([np.swapaxes(axis, 0, 1) for axis in axes], axis=-1)
    for name in NAMES:
        (folder / name).mkdir()
        for number in range(n_images):
            volume = np.empty((*space, 2), np.float32)
            for channel in range(2):
                centre, width = random.normal(0, 0.1, 3), random.normal(0.4, 0.05, 3)
                distance = ((positions - centre.astype(np.float32)) / width.astype(np.float32)) ** 2
                volume[..., channel] = np.exp(-distance.sum(axis=-1))
            volume += random.normal(0, 0.05, volume.shape).astype(np.float32)
            np.save(folder / name / f"{number:03d}.npy", volume)


def _consortium() -> Consortium:
    return Consortium("trio", "localhost", _free_port(), NAMES)


def _start_site(kit: Kit, folder: Path, *options: object) -> subprocess.Popen[bytes]:
    policy = folder / "policy.toml"
    policy.write_text(f"minimum_images = {MINIMUM_IMAGES}\n")
    return _start(
        folder / f"{kit.name}.txt", "site", "start", kit.folder, "--data", folder / kit.name,
        "--policy", policy, "--threads", 1, *options,
    )  # fmt: skip


def _start_fit(kit: Kit, folder: Path, *options: object) -> subprocess.Popen[bytes]:
    return _start(
        folder / "coordinator.txt", "federation", "fit", kit.folder, "-o",
        folder / "model.safetensors", "--threads", 1, *options,
    )  # fmt: skip


def _wait(processes: dict[str, subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait for the fit to end, and end with what it said if that was an error."""
    if processes["coordinator"].wait():
        raise SystemExit((folder / "coordinator.txt").read_text())


def _end(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        process.terminate()
        process.wait()


def _start(output: Path, *arguments: object) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "anamorph", *map(str, arguments)],
            stdout=file,
            stderr=file,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )


def _watch(processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, float]:
    """Return the peak memory of all processes and those they start, until the fit has ended."""
    peaks: dict[str, float] = {}

    def look(name: str, process: psutil.Process) -> None:
        peaks[name] = max(peaks.get(name, 0), _peak(process.pid))
        for child in process.children():
            look(f"{name} > {_role(name)}", child)

    while processes["coordinator"].poll() is None:
        for name, process in processes.items():
            with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                look(name, psutil.Process(process.pid))
        time.sleep(_LOOK)
    return peaks


def _role(parent: str) -> str:
    return "server" if parent == "coordinator" else "job"


def _peak(pid: int) -> float:
    """Return the highest resident memory of a process so far, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * float(line.split()[1])
    return 0.0  # it has ended, and nobody has asked for its exit status yet


def _answers(kit: Kit) -> list[int]:
    """Return the bytes of every answer that left a site, by its audit log."""
    lines = map(json.loads, (kit.work / "audit.jsonl").read_text().splitlines())
    return [line["bytes"] for line in lines if line["event"] == "answered"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


TASKS = {"digits": time_over_kits, "blocks": partial(memory_over_kits, (91, 109, 91), 70)}

if __name__ == "__main__":
    for name in sys.argv[1:] or TASKS:
        TASKS[name]()
