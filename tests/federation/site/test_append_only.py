"""Append-only files: their lines are complete, whatever happened to the writers."""

import os

import pytest

from anamorph.federation.site import append_only
from anamorph.federation.site.append_only import append_line, complete_lines


def test_lines_are_those_that_were_added(tmp_path):
    path = tmp_path / "lines"
    assert complete_lines(path) == []
    for line in ("one", "", "three \u00e9"):
        append_line(path, line)
    assert complete_lines(path) == ["one", "", "three \u00e9"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("before", ["", "one\n", "one\ntwo\n"])
def test_half_a_line_is_not_read_and_goes(tmp_path, before):
    path = tmp_path / "lines"
    path.write_text(before + '{"half')
    assert complete_lines(path) == before.split()
    append_line(path, "next")
    assert path.read_text() == before + "next\n"


def test_a_line_that_does_not_fit_is_an_error_and_leaves_no_trace(tmp_path, monkeypatch):
    path, write = tmp_path / "lines", os.write
    append_line(path, "one")
    monkeypatch.setattr(append_only.os, "write", lambda file, data: write(file, data[:2]))
    with pytest.raises(OSError, match="No space left on device"):
        append_line(path, "two")
    monkeypatch.undo()
    assert path.read_text() == "one\n"
