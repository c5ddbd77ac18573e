"""Where numbers come from: the commit, the machine, the seed and the time."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anamorph.kernels.threads import available_threads

ROOT = Path(__file__).parents[2]
COMMIT_VARIABLE = "ANAMORPH_COMMIT"


def present_provenance(
    seed: int, device: str, n_threads: int | None, seconds: float
) -> dict[str, Any]:
    """Return where a number comes from that was computed just now, in `seconds`."""
    return {
        "commits": [present_commit()],
        "machines": [present_machine(device, n_threads)],
        "seed": seed,
        "seconds": round(seconds, 3),
    }


def joined(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return where a number comes from that was made of several: a run may go on elsewhere."""
    parts = list(parts)
    seeds = {part["seed"] for part in parts}
    if len(seeds) != 1:
        raise ValueError(
            f"steps must share one seed, got {sorted(seeds)}: remove the work folder, or give the "
            "--seed that it was made with"
        )
    return {
        "commits": sorted({commit for part in parts for commit in part["commits"]}),
        "machines": sorted({machine for part in parts for machine in part["machines"]}),
        "seed": seeds.pop(),
        "seconds": round(sum(part["seconds"] for part in parts), 1),
    }


def present_commit() -> str:
    """Return the commit of this source, with "-dirty" where something has been changed since.

    Where the source is a copy without its history, the variable ANAMORPH_COMMIT says it.
    """
    given = os.environ.get(COMMIT_VARIABLE)
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return given or _printed(command) or "unknown"


def present_machine(device: str, n_threads: int | None) -> str:
    """Return the model of the processor, how many cores and threads are used, and the device."""
    n_cores = available_threads()
    words = f"{_processor_model()}, {n_cores} cores, {n_threads or n_cores} threads"
    if device == "cpu":
        return words
    name = _printed(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return f"{words}, {name or device}"


def _printed(command: list[str]) -> str:
    """Return what a command prints, nothing if it cannot be run or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
