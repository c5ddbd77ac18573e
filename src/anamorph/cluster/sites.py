"""ClusterSites: images in partitions, each asked of a worker of a Dask cluster."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
from distributed import Client, Future, KilledWorker, fire_and_forget
from distributed.comm import CommClosedError
from numpy.typing import NDArray

from anamorph.arguments import check_integer
from anamorph.cluster.broadcast import Broadcast
from anamorph.cluster.connection import check_versions
from anamorph.cluster.errors import ClusterError
from anamorph.cluster.partition import Asked, Partition, answer, forget, inspect
from anamorph.cluster.placement import placed
from anamorph.cluster.storage import LatentFolder, PartitionLatents
from anamorph.io.collection import ImageCollection
from anamorph.io.errors import ImageError
from anamorph.io.files import FileImages
from anamorph.kernels.threads import slabs
from anamorph.parameters import Parameters
from anamorph.settings import Settings
from anamorph.sums import FIELDS, Sums

Float64Array = NDArray[np.float64]

_MOST_ATTEMPTS = 5
_SECONDS_BETWEEN_LOOKS = 2.0
# Questions after which workers have warps that an orthogonalisation leaves as they are.
_SHOOT_BEFORE_TURN = ("mean_derivatives", "keep_displacements")


class ClusterSites:
    """The images of a fit, in partitions on the workers of a cluster (an `OwnSites`).

    Used in a ``with`` block, at the end of which the folder is removed, unless it holds something
    else.

    Parameters
    ----------
    client : distributed.Client
    images : FileImages
        Opened here; workers open them again, under the same paths. No others will do.
    settings : Settings
    start : (N, K), optional
        Latents to start from.
    folder : path
        Made if need be, and seen under the same path by all workers. Latents are kept in it.
    n_partitions : int, optional
        By default as many as the workers have threads.
    memory_budget : int, optional
        Bytes for the batches of each task.
    n_threads : int, optional
        Of each task; by default 1, since a worker does as many tasks at once as it has threads.
    patience : float
        Seconds to wait for a worker when there is none.
    """

    def __init__(
        self,
        client: Client,
        images: ImageCollection,
        settings: Settings,
        start: Float64Array | None = None,
        *,
        folder: str | os.PathLike[str],
        n_partitions: int | None = None,
        memory_budget: int | None = None,
        n_threads: int | None = None,
        patience: float = 60.0,
    ) -> None:
        if not isinstance(images, FileImages):
            raise ImageError(
                "workers of a cluster read images from files, got images in memory: save them, "
                "one .npy file each, and give the list of files"
            )
        if n_partitions is not None:
            check_integer("n_partitions", n_partitions, 1)
        self._client, self._patience = client, patience
        self._broadcast = Broadcast(client)
        self._start = start
        n_threads_in_all = sum(self._workers().values())
        check_versions(client)
        self._bounds = slabs(len(images), n_partitions or n_threads_in_all)
        self._places: list[str | None] = [None] * len(self._bounds)
        self._folder = LatentFolder.made_in(folder)
        self._partitions = [
            Partition(
                number,
                images.arguments(range(first, last)),
                tuple(images.identities[first:last]),
                settings,
                self._folder,
                memory_budget,
                n_threads or 1,
                has_start=start is not None,
            )
            for number, (first, last) in enumerate(self._bounds)
        ]
        self._step = -1
        self._parameters: Parameters | None = None
        self._shot_with: Parameters | None = None
        try:
            zeros = np.zeros((len(images), settings.layout.n_latents))
            self.restore(zeros if start is None else start)
            self._digest = self._inspect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ClusterSites:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder of the fit, and have workers drop what they keep of it."""
        if self._client.status == "running":
            for worker in {place for place in self._places if place is not None}:
                # Nobody waits for it: a worker that hangs must not keep a fit from ending.
                fire_and_forget(
                    self._client.submit(
                        forget,
                        self._folder,
                        workers=[worker],
                        allow_other_workers=True,
                        pure=False,
                    )
                )
        self._folder.remove()

    # ---- questions

    def publish(self, parameters: Parameters) -> None:
        """Take note of the parameters that the next questions are about."""
        self._parameters = parameters

    def ask(self, question: str, **arguments: Any) -> Sums:
        """Return the sum of all partitions' answers to a question of `sums.FIELDS`."""
        if question not in FIELDS:
            raise ValueError(f"question must be one of {', '.join(FIELDS)}, got {question!r}")
        asked = Asked(self._step + 1, question, arguments)
        sums: Sums = self._insisting(lambda attempt: self._total(asked, attempt))
        self._step = asked.step
        if question in _SHOOT_BEFORE_TURN:
            self._shot_with = self._parameters
        elif question != "shape_derivatives":
            self._shot_with = None
        return sums

    # ---- latents

    @property
    def latents(self) -> Float64Array:
        """Latents of all images, (N, K)."""
        return np.concatenate([some.latents for some in self._stored()])

    @property
    def latents_before_turn(self) -> Float64Array:
        """Latents of all images before the last orthogonalisation, (N, K)."""
        return np.concatenate([some.before_turn for some in self._stored()])

    def restore(self, latents: Float64Array) -> None:
        """Take up latents (N, K) from a checkpoint."""
        for number, (first, last) in enumerate(self._bounds):
            some = latents[first:last]
            self._folder.write(number, self._step + 1, PartitionLatents(some, some))
        self._step += 1

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start.

        It does not depend on how they are split.
        """
        return self._digest

    # ---- pieces

    def _stored(self) -> list[PartitionLatents]:
        return [self._folder.read(number, self._step) for number in range(len(self._bounds))]

    def _inspect(self) -> str:
        """Have workers look at all images; return their digest."""

        def submit(attempt: int) -> list[list[bytes]]:
            tasks = self._tasks(f"inspect-{attempt}", inspect, [(p,) for p in self._partitions])
            return [self._result(task) for task in tasks]

        digest = hashlib.blake2b(digest_size=16)
        for some in self._insisting(submit):
            digest.update(b"".join(some))
        if self._start is not None:
            digest.update(self._start.tobytes())
        return digest.hexdigest()

    def _total(self, asked: Asked, attempt: int) -> Sums:
        """Ask all partitions, and have neighbours' answers added until one is left."""
        shot_with = self._shot_with if asked.question == "shape_derivatives" else None
        try:
            published, before = self._broadcast.send(self._parameters, shot_with)
        except OSError as error:
            raise _LostError from error
        name = f"{asked.question}-{asked.step}-{attempt}"
        tasks = self._tasks(
            name, answer, [(some, asked, published, before) for some in self._partitions]
        )
        while len(tasks) > 1:
            pairs = [tasks[n : n + 2] for n in range(0, len(tasks), 2)]
            tasks = [
                self._client.submit(_add, *pair, pure=False) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        sums: Sums = self._result(tasks[0])
        return sums

    def _tasks(
        self, name: str, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Future]:
        """Submit a task for every partition, to its worker or, if that is gone, to any."""
        workers = placed(self._places, self._workers())
        self._places = list(workers)
        token = os.path.basename(self._folder.path)
        return [
            self._client.submit(
                task,
                *some,
                key=f"{name}-{token}-{number}",
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
            for number, (some, worker) in enumerate(zip(arguments, workers, strict=True))
        ]

    def _insisting(self, work: Callable[[int], Any]) -> Any:
        """Do work again if a worker died while parameters were sent, or with the only copy."""
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return work(attempt)
            except (CancelledError, CommClosedError, _LostError):
                self._broadcast.forget()
            except KilledWorker as error:
                raise ClusterError(
                    f"a task ended {error.allowed_failures + 1} workers, one after the other; they "
                    "may need more memory, or a smaller budget for batches (--memory)"
                ) from None
        raise ClusterError(
            f"workers were lost {_MOST_ATTEMPTS} times in one step: look at their logs"
        )

    def _result(self, task: Future) -> Any:
        """Wait for a task, as long as there are workers to do it."""
        while True:
            try:
                return task.result(timeout=_SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if task.status == "error":
                    raise
                self._workers()

    def _workers(self) -> dict[str, int]:
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


class _LostError(Exception):
    """Parameters could not be sent: a worker died meanwhile, or the connection."""


def _add(first: Sums, second: Sums) -> Sums:
    return first + second
