"""Files that are whole or not there."""

import os

import pytest

from anamorph.storage.errors import WriteError
from anamorph.storage.replace import replacing
from anamorph.storage.tensors import write_tensors


def test_the_file_appears_at_the_end(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".txt"
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_whatever_happens_the_old_file_stays(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(WriteError if isinstance(error, OSError) else KeyboardInterrupt) as raised:
        write()
    if isinstance(error, OSError):
        assert str(raised.value) == f"{path} cannot be written: [Errno 28] No space left on device"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", ["open", "close", "stat"])
def test_an_interrupt_as_the_temporary_file_is_made_leaves_none(tmp_path, monkeypatch, name):
    original = getattr(os, name)

    def interrupted(file, *arguments, **options):
        result = original(file, *arguments, **options)
        if isinstance(file, int) or ".a.txt." in str(file):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(os, name, interrupted)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a.txt"):
        pass
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    for path in (tmp_path, os.devnull):
        with pytest.raises(WriteError, match="not a plain file"), replacing(type(tmp_path)(path)):
            pass
    assert tmp_path.is_dir()


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
        write_tensors(tmp_path / "model", "model", 1, {}, {})
    finally:
        os.umask(before)
    for name in ("a.txt", "model"):
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match="cannot be written"), replacing(tmp_path / "file" / "a"):
        pass


def test_a_link_is_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "folder" / "a.txt")
    for text in ("first", "second"):
        with replacing(link) as temporary:
            temporary.write_text(text)
        assert link.is_symlink()
        assert (tmp_path / "folder" / "a.txt").read_text() == text
    assert sorted(os.listdir(tmp_path)) == ["folder", "link.txt"]


def test_links_that_lead_in_a_circle_are_not_replaced(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(WriteError, match="in a circle"), replacing(tmp_path / "a"):
        pass
