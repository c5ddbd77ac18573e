"""The workers of a cluster: which of them is asked about a partition, and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, fire_and_forget
from distributed.comm import CommClosedError

from anamorph.cluster.errors import ClusterError
from anamorph.cluster.placement import placed

Result = TypeVar("Result")

_MOST_ATTEMPTS = 5
_SECONDS_BETWEEN_LOOKS = 2.0


class LostError(Exception):
    """What was on its way to workers is lost: one of them died meanwhile, or the connection."""


class Crew:
    """Those workers of a cluster that are there, whoever comes and goes.

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
