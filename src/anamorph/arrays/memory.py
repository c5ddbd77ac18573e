"""How much memory this process may still use, and a plan that says when a fit needs more."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from anamorph.kernels.errors import DeviceError

logger = logging.getLogger("anamorph")

_GIBIBYTE = 2**30
_GROUP = Path("/sys/fs/cgroup")  # what a container may use: versions 2 and 1
_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_bytes() -> int | None:
    """Return how many bytes this process may still use, swap included; None where unknown."""
    known = [found for found in (_available_of_system(), *_available_of_group()) if found]
    return min(known) if known else None


def plan_memory(parameter_bytes: int, sum_bytes: int, image_bytes: int, budget: int) -> None:
    """Raise a DeviceError if a fit needs more memory than there is, and warn if it may.

    Parameters
    ----------
    parameter_bytes : int
        Of mean and bases.
    sum_bytes : int
        Of the largest sums for all columns of a basis, in float64.
    image_bytes : int
        What the work on one image takes.
    budget : int
        For images that are worked on at a time, and what is kept of them.
    """
    usable = available_bytes()
    if usable is None:
        return
    # Old and new parameters, their momenta and the step between them; sums in float64, and again
    # while they are solved with.
    model = 5 * parameter_bytes + 2 * sum_bytes
    if model + image_bytes > usable:
        raise DeviceError(
            f"the fit needs {(model + image_bytes) / _GIBIBYTE:.2f} GiB of memory, and "
            f"{usable / _GIBIBYTE:.2f} GiB are free: lower n_components, use coarser images, or a "
            "machine with more memory"
        )
    if model + max(image_bytes, budget) > usable:
        left = max(image_bytes, int(0.8 * (usable - model)))
        logger.warning(
            "The fit may use %.2f GiB of memory, and %.2f GiB are free: set memory_budget "
            "(--memory) to at most %d MB",
            *((model + budget) / _GIBIBYTE, usable / _GIBIBYTE, max(1, left // 10**6)),
        )


def _available_of_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        facts = {name: int(rest.split()[0]) for name, _, rest in (s.partition(":") for s in lines)}
        return 1024 * (facts["MemAvailable"] + facts.get("SwapFree", 0))
    except (OSError, LookupError, ValueError):
        pass
    try:  # not Linux: what is there at all
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _available_of_group() -> list[int]:
    found = []
    for limit, usage, stat, name in _GROUP_FILES:
        try:
            most, used = (int((_GROUP / file).read_text()) for file in (limit, usage))
            lines = (_GROUP / stat).read_text().splitlines()
            cached = next(int(line.split()[1]) for line in lines if line.split()[0] == name)
        except (OSError, ValueError, StopIteration, IndexError):  # "max" is no limit
            continue
        found.append(max(1, most - used + cached))
    return found
