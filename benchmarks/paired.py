"""Paired rounds: each round times the floor and the candidates once, so that noise is shared."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def seconds(task: Callable[[], object]) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def ratios(
    floor: Callable[[], object], candidates: dict[str, Callable[[], object]], rounds: int = 15
) -> tuple[float, dict[str, float]]:
    """Return the median time of the floor and the median ratio of each candidate to it.

    Everything is called once before, to compile and to warm the caches.
    """
    floor()
    for task in candidates.values():
        task()
    floors = []
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        reference = seconds(floor)
        floors.append(reference)
        for name, task in candidates.items():
            measured[name].append(seconds(task) / reference)
    return median(floors), {name: median(values) for name, values in measured.items()}
