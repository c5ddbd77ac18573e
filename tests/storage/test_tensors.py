"""Files: whole or not at all, and errors in one line that say what to do."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from anamorph.storage import tensors
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import read_tensors, write_tensors
from tests.conftest import one_line

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(4, np.float32)}
FACTS = {"name": "x", "numbers": [1, 2.5, None]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.anamorph"
    write_tensors(path, "model", 1, ARRAYS, FACTS)
    return path


def test_what_is_written_is_read(path):
    arrays, facts = read_tensors(path, "model", 1)
    assert facts == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


def test_transposed_arrays_are_written_as_they_look(tmp_path):
    array = np.arange(6.0).reshape(2, 3).T
    write_tensors(tmp_path / "file", "model", 1, {"a": array}, {})
    assert np.array_equal(read_tensors(tmp_path / "file", "model", 1)[0]["a"], array)


def test_nothing_else_is_left_in_the_folder(path):
    write_tensors(path, "model", 1, ARRAYS, FACTS)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("failing", ["save_file", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(monkeypatch, path, failing):
    before = path.read_bytes()

    def fail(*arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(tensors if failing == "save_file" else os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_tensors(path, "model", 1, {"a": np.zeros(1000)}, {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_missing_folder_is_explained_and_not_made(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist") as error:
        write_tensors(tmp_path / "no" / "file", "model", 1, ARRAYS, FACTS)
    one_line(error)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_one_line(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelFileError, match="truncated") as error:
        read_tensors(path, "model", 1)
    assert str(path) in one_line(error)


@pytest.mark.parametrize("content", [b"hello", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(5000)])
def test_foreign_files_are_one_line(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a model file") as error:
        read_tensors(path, "model", 1)
    one_line(error)


def test_files_of_others_are_one_line(tmp_path):
    path = tmp_path / "other.safetensors"
    for metadata in (None, {"format": "pt"}, {"anamorph": "[1, 2]"}, {"anamorph": "{"}):
        save_file({"a": np.zeros(3)}, path, metadata=metadata)
        with pytest.raises(ModelFileError, match="not a model file") as error:
            read_tensors(path, "model", 1)
        one_line(error)


def test_newer_formats_are_one_line(path):
    write_tensors(path, "model", 2, ARRAYS, FACTS)
    with pytest.raises(ModelFileError, match=r"version 2.*upgrade anamorph") as error:
        read_tensors(path, "model", 1)
    one_line(error)


@pytest.mark.parametrize("header", [{"kind": "model"}, {"kind": "model", "version": 1}])
def test_headers_that_lack_something_are_one_line(tmp_path, header):
    path = tmp_path / "file"
    save_file({"a": np.zeros(3)}, path, metadata={"anamorph": json.dumps(header)})
    with pytest.raises(ModelFileError) as error:
        read_tensors(path, "model", 1)
    one_line(error)


def test_other_kinds_missing_files_and_folders_are_one_line(path, tmp_path):
    with pytest.raises(ModelFileError, match="not a checkpoint file") as error:
        read_tensors(path, "checkpoint", 1)
    one_line(error)
    with pytest.raises(ModelFileError, match="does not exist") as error:
        read_tensors(tmp_path / "nothing", "model", 1)
    one_line(error)
    with pytest.raises(ModelFileError, match="is a folder") as error:
        read_tensors(tmp_path, "model", 1)
    one_line(error)
