"""Memory is planned before a fit: too little is one line that says what to reduce."""

import logging

import pytest

from anamorph import ShapeAppearanceModel
from anamorph.arrays import memory
from anamorph.kernels.errors import DeviceError
from tests.cli.conftest import blobs
from tests.conftest import one_line


def model(**changes):
    return ShapeAppearanceModel(3, **{"n_iter": 1, "n_threads": 1} | changes)


def test_what_is_free_is_known_on_linux():
    free = memory.available_bytes()
    assert free is None or 2**20 < free < 2**50


def test_too_little_memory_is_told_before_the_fit(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**18)
    with pytest.raises(DeviceError, match=r"needs 0.00 GiB of memory.*lower n_components") as error:
        model().fit(blobs(8, (32, 32)))
    one_line(error)


def test_a_budget_that_is_too_large_is_told(monkeypatch, caplog):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**21)
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
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available_bytes() == 500000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() != 500000
