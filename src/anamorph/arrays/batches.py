"""The planner: how many images, or columns, are worked on at a time, so that they fit in memory.

Fitting, encoding and drawing ask it, on the processor and on the GPU. It knows no model: whoever
asks says what the work on one image takes, in bytes. A *batch* is worked on as a whole before the
next one begins; its *parts* are shared among threads. A GPU takes a batch in one part. Whether a
fit has room at all is planned here as well.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anamorph.arrays.devices import find_gpu, free_bytes
from anamorph.kernels.errors import DeviceError
from anamorph.kernels.threads import n_threads, run_parallel, slabs

logger = logging.getLogger("anamorph")

Result = TypeVar("Result")

_MOST_IMAGES_PER_BATCH = 512
_MOST_IMAGES_PER_PART = 64
_MOST_BYTES_PER_PART = 2**27  # more only makes threads wait for each other
_MOST_IMAGES_ON_GPU = 2**14
_MOST_BYTES_ON_GPU = 2**33  # more does not make it faster
# What the libraries of the GPU and pieces of memory that do not fit together may take.
_USABLE_SHARE = 0.85
_SOLVER_BYTES = 3 * 2**30
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


def split_evenly(whole: slice, most: int) -> list[slice]:
    """Split a slice into almost equal pieces, as few as have at most `most` (at least 1) items."""
    return _pieces(whole, -(-(whole.stop - whole.start) // max(1, most)))


def _pieces(whole: slice, count: int) -> list[slice]:
    length = whole.stop - whole.start
    bounds = slabs(length, count) if length else []
    return [slice(whole.start + first, whole.start + last) for first, last in bounds]


@dataclass(frozen=True)
class BatchPlanner:
    """Splits images into batches and parts that stay within a memory budget.

    Attributes
    ----------
    image_bytes : int
        What the work on one image takes.
    budget : int
        Bytes for the work on all images that are worked on at the same time. One image at a time
        is the least, whatever it takes.
    on_gpu : bool
        Whether a GPU does the work. By default the processor does.
    """

    image_bytes: int
    budget: int
    on_gpu: bool = False

    def batches(self, n_images: int) -> list[slice]:
        """Return batches of images, to be worked on one after the other."""
        budget, most = self.budget, _MOST_IMAGES_PER_BATCH
        if self.on_gpu:
            budget, most = min(budget, _MOST_BYTES_ON_GPU), _MOST_IMAGES_ON_GPU
        return split_evenly(slice(0, n_images), min(most, budget // self.image_bytes))

    def parts(self, batch: slice) -> list[slice]:
        """Split a batch into parts for threads to share; a GPU takes it whole."""
        if self.on_gpu:
            return [batch]
        n_images = batch.stop - batch.start
        return _pieces(batch, max(n_threads(), -(-n_images // _MOST_IMAGES_PER_PART)))

    def run(self, task: Callable[[slice], Result], n_images: int) -> list[Result]:
        """Return what a task makes of all images, part by part, where no part needs another.

        Threads take the next part when they are done with one, without waiting for a batch. Where
        the budget has no room for a part per thread, fewer parts are worked on at a time.

        Parameters
        ----------
        task : callable
            Given the slice of the images to work on.
        n_images : int

        Returns
        -------
        list
            One result per part, in the order of the images.
        """
        if self.on_gpu:
            return [task(batch) for batch in self.batches(n_images)]
        at_once = max(1, self.budget // self.image_bytes)
        n_workers = min(n_threads(), at_once)
        most = min(_MOST_IMAGES_PER_PART, _MOST_BYTES_PER_PART // self.image_bytes)
        size = max(1, min(at_once // n_workers, most))
        parts = split_evenly(slice(0, n_images), size)
        step = len(parts) if n_workers == n_threads() else n_workers
        rounds = [parts[first : first + step] for first in range(0, len(parts), max(1, step))]
        return [result for some in rounds for result in run_parallel(task, some)]


@dataclass(frozen=True)
class GpuPlan:
    """How a fit uses the memory of the GPU.

    Attributes
    ----------
    are_images_resident : bool
        Whether all images stay on the GPU, or are sent there whenever they are needed.
    are_sums_resident : bool
        Whether sums for all columns of a basis stay there, or are solved with some at a time.
    working_bytes : int
        For batches of images, and displacements that are kept.
    """

    are_images_resident: bool
    are_sums_resident: bool
    working_bytes: int


def plan_gpu(
    parameter_bytes: int,
    sum_bytes: int,
    stored_bytes: int,
    image_bytes: int,
    budget: int | None = None,
) -> GpuPlan:
    """Plan how a fit uses the memory of the GPU, or raise a DeviceError if there is too little.

    Parameters
    ----------
    parameter_bytes : int
        Of mean and bases.
    sum_bytes : int
        Of the largest sums for all columns of a basis, in float64.
    stored_bytes : int
        Of all images.
    image_bytes : int
        What the work on one image takes.
    budget : int, optional
        The most bytes to use; by default what is free.

    Returns
    -------
    GpuPlan
    """
    usable = usable_gpu_bytes(budget)
    # Old and new parameters, their momenta and the step between them; sums in float64, and again
    # in float32 and side by side while they are solved with.
    at_least = 5 * parameter_bytes + min(_SOLVER_BYTES, 2 * sum_bytes)
    are_sums_resident = at_least + 2 * sum_bytes + image_bytes <= usable
    model = at_least + (2 * sum_bytes if are_sums_resident else 0)
    needed = model + image_bytes
    if needed > usable:
        raise DeviceError(
            f"the fit needs {needed / _GIBIBYTE:.2f} GiB of the GPU, of which "
            f"{usable / _GIBIBYTE:.2f} GiB can be used: lower n_components, use coarser images, "
            "or device='cpu'"
        )
    left = usable - model
    are_resident = stored_bytes + image_bytes <= left // 2
    return GpuPlan(are_resident, are_sums_resident, left - stored_bytes if are_resident else left)


def usable_gpu_bytes(budget: int | None = None) -> int:
    """Return how many bytes of the GPU can be used: those that are free, or the budget if less."""
    find_gpu()
    usable = int(_USABLE_SHARE * free_bytes())
    return usable if budget is None else min(usable, budget)


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
