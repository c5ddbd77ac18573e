"""Outputs that are committed together: killed anywhere, the same command finishes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from anamorph.storage.commit import Lock, Outputs, locked
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import replacing

CALLS = ("open", "write", "fsync", "ftruncate", "replace", "unlink", "chmod")


def write_text(text):
    def write(path):
        with replacing(path) as temporary:
            Path(temporary).write_text(text)

    return write


def command(folder, identity="same"):
    """Do what a fit does with its files; return whether it had been finished before."""
    model, table, checkpoint = (folder / name for name in ("model", "table", "checkpoint"))
    with Outputs([model, table], table) as outputs:
        if outputs.finish_interrupted(identity):
            return True
        if model.exists() or table.exists():
            raise FileExistsError(model)
        with locked(checkpoint), replacing(checkpoint) as temporary:
            Path(temporary).write_text("state")
        outputs.commit(
            {model: write_text("m" * 1000), table: write_text("t")}, checkpoint, identity
        )
    return False


def killed_at(number, when, run):
    """Run something in a process that kills itself at a call; return whether it came to that."""
    child = os.fork()
    if child == 0:
        count = 0

        def watched(original):
            def call(*arguments, **options):
                nonlocal count
                count += 1
                if (count, when) == (number, "before"):
                    os.kill(os.getpid(), signal.SIGKILL)
                is_last = count == number
                try:
                    return original(*arguments, **options)
                finally:
                    if is_last:
                        os.kill(os.getpid(), signal.SIGKILL)

            return call

        for name in CALLS:
            setattr(os, name, watched(getattr(os, name)))
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_the_same_command_finishes(tmp_path, when):
    n_kills = 0
    while True:
        folder = tmp_path / f"{n_kills}"
        folder.mkdir()
        if not killed_at(n_kills + 1, when, lambda folder=folder: command(folder)):
            break
        n_kills += 1
        is_done = sorted(os.listdir(folder)) == ["model", "table"]  # killed after the last call
        if not is_done:
            command(folder)
        assert sorted(os.listdir(folder)) == ["model", "table"], n_kills
        assert (folder / "model").read_text() == "m" * 1000
        assert (folder / "table").read_text() == "t"
    assert n_kills > 15


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_commit_of_another_command_is_finished_but_not_taken_for_this_one(tmp_path):
    for number in range(1, 60):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not killed_at(number, "before", lambda folder=folder: command(folder, "other")):
            break
        with suppress(FileExistsError):
            command(folder, "same")
        assert {"model", "table"} <= set(os.listdir(folder))
        assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_file_that_cannot_be_written_leaves_all_as_it_was(tmp_path):
    model, table, checkpoint = (tmp_path / name for name in ("model", "table", "checkpoint"))
    model.write_text("old")
    checkpoint.write_text("state")

    def fail(path):
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(WriteError, match=f"{table} cannot be written: .*No space left"),
        Outputs([model, table], table) as outputs,
    ):
        outputs.commit({model: write_text("new"), table: fail}, checkpoint, "same")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "model"]
    assert model.read_text() == "old"


def test_an_interrupt_within_the_commit_does_not_leave_half_of_it(tmp_path, monkeypatch):
    model, table, checkpoint = (tmp_path / name for name in ("model", "table", "checkpoint"))
    checkpoint.write_text("state")
    original, names = os.replace, []

    def interrupted(source, target):
        if Path(target) in (model, table):
            names.append(Path(target).name)
            if names == ["model", "table"]:
                raise KeyboardInterrupt
        original(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), Outputs([model, table], table) as outputs:
        outputs.commit({model: write_text("m"), table: write_text("t")}, checkpoint, "same")
    assert sorted(os.listdir(tmp_path)) == ["model", "table"]


def test_files_of_killed_processes_are_removed_and_no_others(tmp_path):
    left = [".model.0123abcd", ".table.89abcdef.tsv", ".model.new", "..model.new.0123abcd.new"]
    kept = ["other", ".model.backup", ".model.0123abcg", ".other.0123abcd", "model.0123abcd"]
    for name in left + kept:
        (tmp_path / name).write_text("x")
    with Outputs([tmp_path / "model", tmp_path / "table"], tmp_path / "table") as outputs:
        assert not outputs.finish_interrupted("same")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_two_processes_do_not_write_the_same_files(tmp_path):
    path = tmp_path / "table"
    with Outputs([tmp_path / "model", path], path):
        with pytest.raises(WriteError, match="is being written by another fit"):
            Lock(path)
        code = "import sys; from pathlib import Path; from anamorph.storage.commit import Lock\n"
        code += "Lock(Path(sys.argv[1]))"
        other = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
        )
        assert "is being written by another fit" in other.stderr
    Lock(path).release()
    assert os.listdir(tmp_path) == []


def test_a_link_is_locked_as_the_file_that_it_leads_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "table")
    lock = Lock(tmp_path / "table")
    with pytest.raises(WriteError, match="another fit"):
        Lock(tmp_path / "link")
    lock.release()
