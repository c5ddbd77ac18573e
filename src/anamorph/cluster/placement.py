"""Which worker each partition is asked of: the one that has its images open, if it is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def placed(before: Sequence[str | None], threads: Mapping[str, int]) -> list[str]:
    """Return a worker for each partition.

    Partitions stay where they were, unless their worker is gone or has more than its share;
    others go to workers that have less. Neighbours go to one worker where they can, since their
    answers are added first.

    Parameters
    ----------
    before : list of str or None
        Workers of the partitions until now; None: no one yet.
    threads : dict
        Number of threads of each worker that is there; at least one worker.
    """
    shares = _shares(len(before), threads)
    taken: Counter[str] = Counter()
    places: list[str | None] = []
    for worker in before:
        stays = worker is not None and taken[worker] < shares.get(worker, 0)
        places.append(worker if stays else None)
        if worker is not None and stays:
            taken[worker] += 1
    free = iter([name for name in shares for _ in range(shares[name] - taken[name])])
    return [next(free) if worker is None else worker for worker in places]


def _shares(n_partitions: int, threads: Mapping[str, int]) -> dict[str, int]:
    """Return how many partitions each worker should have, in proportion to its threads."""
    names = sorted(threads)
    total = sum(threads.values())
    shares, n_before, threads_before = {}, 0, 0
    for name in names:
        threads_before += threads[name]
        n_until = -(-n_partitions * threads_before // total)
        shares[name] = n_until - n_before
        n_before = n_until
    return shares
