"""The planner: every image once, in order, and never more at a time than the budget allows.

Too little memory for a fit is one line that says what to reduce.
"""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamorph import ShapeAppearanceModel
from anamorph.arrays import batches
from anamorph.arrays.batches import BatchPlanner, split_evenly
from anamorph.kernels.errors import DeviceError
from anamorph.kernels.threads import use_threads
from tests.cli.conftest import blobs
from tests.conftest import one_line

sizes = st.integers(1, 10**4)


def covered(parts):
    """Return the numbers of all images, in the order of the parts."""
    return [n for part in parts for n in range(part.start, part.stop)]


@given(length=st.integers(0, 3000), most=st.integers(0, 100))
def test_pieces_are_few_even_and_cover_everything(length, most):
    pieces = split_evenly(slice(5, 5 + length), most)
    lengths = [piece.stop - piece.start for piece in pieces]
    assert covered(pieces) == list(range(5, 5 + length))
    assert len(pieces) == -(-length // max(1, most))
    assert not lengths or max(lengths) - min(lengths) <= 1


@given(n_images=st.integers(0, 2000), image_bytes=sizes, budget=st.integers(0, 10**6))
@pytest.mark.parametrize("on_gpu", [False, True])
def test_batches_fit_the_budget(on_gpu, n_images, image_bytes, budget):
    planner = BatchPlanner(image_bytes, budget, on_gpu)
    batches = planner.batches(n_images)
    assert covered(batches) == list(range(n_images))
    assert all((b.stop - b.start) * image_bytes <= max(budget, image_bytes) for b in batches)
    with use_threads(3):
        for batch in batches:
            parts = planner.parts(batch)
            assert covered(parts) == list(range(batch.start, batch.stop))
            assert len(parts) == 1 if on_gpu else len(parts) >= min(3, batch.stop - batch.start)


class Work:
    """A task that notes how many images are worked on at the same time."""

    def __init__(self, image_bytes):
        self.image_bytes, self.now, self.peak = image_bytes, 0, 0
        self._lock = threading.Lock()

    def __call__(self, part):
        size = (part.stop - part.start) * self.image_bytes
        with self._lock:
            self.now += size
            self.peak = max(self.peak, self.now)
        threading.Event().wait(1e-4)
        with self._lock:
            self.now -= size
        return part


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("budget", [0, 1000, 2500, 3999, 10_000, 10**9])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_work_in_parts_stays_within_the_budget(n_threads, budget, on_gpu):
    work = Work(1000)
    with use_threads(n_threads):
        parts = BatchPlanner(1000, budget, on_gpu).run(work, 50)
    assert covered(parts) == list(range(50))
    assert work.peak <= max(budget, 1000)


def test_without_images_there_is_nothing_to_do():
    planner = BatchPlanner(1000, 10**6)
    assert planner.batches(0) == []
    assert planner.run(lambda part: part, 0) == []


# ---- room for a fit


def model(**changes):
    return ShapeAppearanceModel(3, **{"n_iter": 1, "n_threads": 1} | changes)


def test_what_is_free_is_known_on_linux():
    free = batches.available_bytes()
    assert free is None or 2**20 < free < 2**50


def test_too_little_memory_is_told_before_the_fit(monkeypatch):
    monkeypatch.setattr(batches, "available_bytes", lambda: 2**18)
    with pytest.raises(DeviceError, match=r"needs 0.00 GiB of memory.*lower n_components") as error:
        model().fit(blobs(8, (32, 32)))
    one_line(error)


def test_a_budget_that_is_too_large_is_told(monkeypatch, caplog):
    monkeypatch.setattr(batches, "available_bytes", lambda: 2**21)
    with caplog.at_level(logging.WARNING):
        model().fit(blobs(20, (32, 32)))
    assert "set memory_budget (--memory) to at most 1 MB" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        model(memory_budget=10**5).fit(blobs(20, (32, 32)))
    assert "memory" not in caplog.text


def test_what_a_container_may_use_is_a_limit(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 200000\n")
    monkeypatch.setattr(batches, "_GROUP", tmp_path)
    assert batches.available_bytes() == 500000
    (tmp_path / "memory.max").write_text("max\n")
    assert batches.available_bytes() != 500000
