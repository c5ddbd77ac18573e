"""Threads: the same results in the same order, and never threads within threads."""

import os
import subprocess
import sys
import time
import weakref
from collections import deque
from threading import Barrier, Event, Thread

import numpy as np
import pytest

from anamorph.kernels import threads
from anamorph.kernels.threads import _pool, n_threads, run_parallel, slabs, use_threads


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_order(count):
    with use_threads(count):
        assert run_parallel(lambda x: x * x, range(100)) == [x * x for x in range(100)]


def test_workers_do_not_start_workers():
    with use_threads(3):
        assert n_threads() == 3
        assert run_parallel(lambda _: n_threads(), range(6)) == [1] * 6
        assert run_parallel(lambda _: n_threads(), range(1)) == [3]


def test_errors_of_workers_reach_the_caller():
    with use_threads(2), pytest.raises(ZeroDivisionError):
        run_parallel(lambda x: 1 / x, [1, 0])


def test_the_first_error_is_raised():
    def fail(item):
        if item >= 2:
            raise ValueError(item)

    with use_threads(3):
        for _ in range(20):
            with pytest.raises(ValueError, match="2"):
                run_parallel(fail, range(9))


def test_helpers_that_never_started_hold_nothing():
    """On a busy machine they stay in the queue of the pool, with the arrays of their callers."""
    started, release = Event(), Event()

    def block():
        started.set()
        release.wait(30)

    with use_threads(2):
        busy = _pool(1).submit(block)
        assert started.wait(30)
        arrays = [np.zeros(3), np.zeros(3)]
        alive = [weakref.ref(array) for array in arrays]
        results = run_parallel(lambda array: array + 1, arrays)
        alive += [weakref.ref(result) for result in results]
        del arrays, results
        left = [reference() is not None for reference in alive]
        release.set()
        busy.result(30)
    assert left == [False] * 4


def test_callers_do_not_wait_for_each_other():
    begun, may_end = Event(), Event()

    def last_long(_):
        begun.set()
        return may_end.wait(10)

    with use_threads(2):
        other = Thread(target=lambda: run_parallel(last_long, range(2)))
        other.start()
        begun.wait(10)
        assert run_parallel(lambda item: item, range(3)) == [0, 1, 2]
        assert not may_end.is_set()
        may_end.set()
        other.join()


def test_after_a_failure_no_task_begins_and_those_that_have_are_waited_for(monkeypatch):
    both_have_begun, all_are_taken, begun, ended = Barrier(2), Event(), [], []

    def take_all(left, maxlen):
        deque(left, maxlen)
        all_are_taken.set()

    def task(item):
        begun.append(item)
        if item < 2:
            both_have_begun.wait(10)
        if item == 0:
            raise RuntimeError
        assert all_are_taken.wait(10)  # by the thread whose task has failed
        time.sleep(0.2)
        ended.append(item)

    monkeypatch.setattr(threads, "deque", take_all)
    with use_threads(2), pytest.raises(RuntimeError):
        run_parallel(task, range(10))
    assert sorted(begun) == [0, 1]
    assert ended == [1]
    with use_threads(2):
        assert n_threads() == 2  # the caller is none of the workers any more


@pytest.mark.parametrize(("length", "count"), [(10, 3), (3, 10), (7, 7), (1, 1), (1000, 6)])
def test_slabs_cover_everything_once(length, count):
    parts = slabs(length, count)
    assert [x for start, stop in parts for x in range(start, stop)] == list(range(length))
    sizes = [stop - start for start, stop in parts]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == min(length, count)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_bad_numbers_of_threads_are_refused(count):
    with pytest.raises(ValueError, match="n_threads must be an integer >= 1"), use_threads(count):
        pass


FORKS = """
import os
from anamorph.kernels.threads import run_parallel, use_threads

def squares():
    with use_threads(2):
        return run_parallel(lambda x: x * x, range(4))

squares()
child = os.fork()
assert squares() == [0, 1, 4, 9]
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_has_threads_of_its_own():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=True, timeout=60)
