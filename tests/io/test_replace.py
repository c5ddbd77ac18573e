"""Files that are whole or not there."""

import os

import pytest

from anamorph.io.errors import WriteError
from anamorph.io.replace import replacing


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


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    for path in (tmp_path, "/dev/full"):
        with pytest.raises(WriteError, match="not a plain file"), replacing(type(tmp_path)(path)):
            pass
    assert tmp_path.is_dir()
