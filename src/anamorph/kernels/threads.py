"""Threads: kernels release the interpreter lock, and this pool runs them in parallel.

Numba's own thread pool is not used: it aborts the process when two threads of Python enter it,
and it cannot be sized per call.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from typing import Generic, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_requested: ContextVar[int | None] = ContextVar("anamorph_threads", default=None)
_worker = threading.local()


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_threads() -> int:
    """Return the number of threads to use: 1 inside a worker, which is already one of many."""
    if getattr(_worker, "busy", False):
        return 1
    return _requested.get() or available_threads()


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Use `count` threads within a ``with`` block; None means one per processor."""
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ValueError(f"n_threads must be an integer >= 1 or None, got {count!r}")
    token = _requested.set(count)
    try:
        yield
    finally:
        _requested.reset(token)


@cache
def _controller() -> ThreadpoolController:
    """Return what controls BLAS; to look for it takes ten milliseconds, so it is done once."""
    return ThreadpoolController()


class _OneBlasThread:
    """Keeps BLAS to one thread within ``with`` blocks, which may overlap."""

    def __init__(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._limit.restore_original_limits()


#: For matrix products inside our own threads: threads of BLAS would wait for each other.
one_blas_thread = _OneBlasThread()


def run_parallel(task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``[task(item) for item in items]``, computed by `n_threads` threads and this one.

    If a task fails, no further one starts. The function waits for those that run, as they may write
    to the caller's arrays, and raises the error of the first task that failed.
    """
    count = min(n_threads(), len(items))
    if count <= 1:
        return [task(item) for item in items]
    job = _Job(task, items)
    helpers = [_pool(count - 1).submit(job.work) for _ in range(count - 1)]
    try:
        job.work()
    finally:  # helpers that have not started have nothing left to do
        wait([helper for helper in helpers if not helper.cancel()])
        results, errors = job.results, job.errors
        job.forget()
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(len(items))]


class _Job(Generic[Item, Result]):
    """Items for threads to work on, each of which takes the next one.

    A helper that is cancelled stays in the queue of the pool until a thread comes by, on a busy
    machine much later. What it holds is this, which by then has let go of the caller's arrays.
    """

    def __init__(self, task: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._task, self._items = task, items
        self._left = iter(range(len(items)))
        self.results: dict[int, Result] = {}
        self.errors: dict[int, Exception] = {}

    def work(self) -> None:
        """Work on items while there are any."""
        _worker.busy = True
        try:
            for i in self._left:
                try:
                    self.results[i] = self._task(self._items[i])
                except Exception as error:
                    self.errors[i] = error
                    break
        finally:
            _worker.busy = False
            deque(self._left, maxlen=0)  # after a failure, no task starts

    def forget(self) -> None:
        """Let go of everything, once no thread works on it."""
        del self._task, self._items, self.results, self.errors


def slabs(length: int, count: int) -> list[tuple[int, int]]:
    """Split ``range(length)`` into at most `count` contiguous, almost equal parts."""
    count = max(1, min(count, length))
    bounds = [length * i // count for i in range(count + 1)]
    return list(pairwise(bounds))


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="anamorph")


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
