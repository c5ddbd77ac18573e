"""The workers of a cluster: which of them is asked about a partition, and waiting for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, fire_and_forget
from distributed.comm import CommClosedError

from anamorph.cluster.connection import ClusterError

Result = TypeVar("Result")

_MOST_ATTEMPTS = 5
_SECONDS_BETWEEN_LOOKS = 2.0


class LostError(Exception):
    """What was on its way to workers is lost: one of them died meanwhile, or the connection."""


class Crew:
    """The workers of a cluster, which may come and go at any time.

    Parameters
    ----------
    client : distributed.Client
    patience : float
        Seconds to wait for a worker when there is none.
    """

    def __init__(self, client: Client, patience: float) -> None:
        self._client, self._patience = client, patience
        self._places: list[str | None] = []

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every worker, as soon as there is one."""
        deadline = time.monotonic() + self._patience
        while True:
            if self._client.status in ("closing", "closed"):
                raise ClusterError(
                    "the Dask scheduler is gone: start it and its workers, then run the same "
                    "command again"
                )
            threads: dict[str, int] = {}
            with suppress(OSError):  # the client tries to reconnect, and closes if it cannot
                threads = self._client.nthreads()
            if threads:
                return threads
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster has had no worker for {self._patience:.0f} s: start some with "
                    "'dask worker', then run the same command again"
                )
            time.sleep(min(_SECONDS_BETWEEN_LOOKS, self._patience / 10))

    def submit(
        self, name: str, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Future]:
        """Submit a task for every partition, to its worker or, if that dies, to any.

        Parameters
        ----------
        name : str
            Different for all that is ever submitted.
        task : callable
        arguments : list of tuples
            Of each partition's task.
        """
        before = self._places or [None] * len(arguments)
        workers = placed(before, self.threads())
        self._places = list(workers)
        return [
            self._client.submit(
                task,
                *some,
                key=f"{name}-{number}",
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
            for number, (some, worker) in enumerate(zip(arguments, workers, strict=True))
        ]

    def combine(
        self, task: Callable[[Result, Result], Result], futures: Sequence[Future]
    ) -> Future:
        """Have results of tasks taken together, neighbours first, where they are."""
        while len(futures) > 1:
            pairs = [futures[n : n + 2] for n in range(0, len(futures), 2)]
            futures = [
                self._client.submit(task, *pair, pure=False) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        return futures[0]

    def result(self, future: Future) -> Any:
        """Wait for a task, as long as there are workers to do it."""
        while True:
            try:
                return future.result(timeout=_SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if future.status == "error":  # it is the task that raised it
                    raise
                self.threads()

    def insist(self, work: Callable[[int], Result], recover: Callable[[], None]) -> Result:
        """Do work until it succeeds, though what it needs was lost with the last worker to have it.

        Parameters
        ----------
        work : callable
            Called with the number of the attempt.
        recover : callable
            Called before the next attempt.
        """
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return work(attempt)
            except (CancelledError, CommClosedError, LostError):
                recover()
            except KilledWorker as error:
                raise ClusterError(
                    f"a task ended {error.allowed_failures + 1} workers, one after the other; they "
                    "may need more memory, or a smaller budget for batches (--memory)"
                ) from None
        raise ClusterError(
            f"workers were lost {_MOST_ATTEMPTS} times in one step: look at their logs"
        )

    def tell(self, task: Callable[..., None], *arguments: Any) -> None:
        """Have all workers that were asked do something, without waiting for it.

        A worker that hangs does not keep a fit from ending.
        """
        if self._client.status != "running":
            return
        for worker in {place for place in self._places if place is not None}:
            fire_and_forget(
                self._client.submit(
                    task, *arguments, workers=[worker], allow_other_workers=True, pure=False
                )
            )


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
