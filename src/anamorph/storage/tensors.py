"""Named arrays and JSON facts in one safetensors file, written completely or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from anamorph.storage.errors import ModelFileError
from anamorph.storage.replace import replacing

_KEY = "anamorph"
_TYPES = {"F32": np.float32, "F64": np.float64}  # those that can be mapped


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    arrays: dict[str, NDArray[Any]],
    facts: dict[str, Any],
) -> None:
    """Write arrays and facts to a file, completely or not at all.

    Parameters
    ----------
    path : path
    kind : str
        Kind of file, e.g. "model".
    version : int
        Version of the format of this kind.
    arrays : dict of arrays
    facts : dict
        Values that JSON can hold.
    """
    path = Path(path)
    header = json.dumps({"kind": kind, "version": version, "facts": facts})
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    if not path.parent.is_dir():
        raise ModelFileError(f"{path.parent} does not exist: create it, then write {path.name}")
    with replacing(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={_KEY: header})
        except SafetensorError as error:  # raised when the disk is full
            raise OSError(str(error)) from None


def read_tensors(
    path: str | os.PathLike[str],
    kind: str,
    newest_version: int,
    is_mapped: Callable[[int], bool] = lambda _: False,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and facts of a file, or raise a ModelFileError that says what is wrong.

    Parameters
    ----------
    path : path
    kind : str
        Kind of file, e.g. "model".
    newest_version : int
        Newest version of the format that can be read.
    is_mapped : callable, optional
        Given the number of values of an array, returns whether to map the array instead of
        reading it; by default none is mapped.

    Returns
    -------
    arrays : dict of arrays
    facts : dict
    """
    path = Path(path)
    if not path.exists():
        raise ModelFileError(f"{path} does not exist")
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a {kind} file")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(_KEY, "null"))
            arrays = _mapped_tensors(path, is_mapped)
            names = file.keys() - arrays.keys()
            arrays |= {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ModelFileError(
            f"{path} is not a {kind} file of anamorph, or it is truncated ({error})"
        ) from None
    is_complete = isinstance(header, dict) and {"kind", "version", "facts"} <= header.keys()
    if not is_complete or header["kind"] != kind or not isinstance(header["version"], int):
        raise ModelFileError(f"{path} is not a {kind} file of anamorph")
    if header["version"] > newest_version:
        raise ModelFileError(
            f"{path} has format version {header['version']}, and this version of anamorph reads "
            f"up to {newest_version}: upgrade anamorph"
        )
    return arrays, header["facts"]


def _mapped_tensors(path: Path, is_mapped: Callable[[int], bool]) -> dict[str, NDArray[Any]]:
    """Return the arrays to map, at the offsets that the header of the file gives."""
    with open(path, "rb") as file:
        start = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start))
    header.pop("__metadata__", None)
    return {
        name: np.memmap(
            path,
            _TYPES[facts["dtype"]],
            "r",
            8 + start + facts["data_offsets"][0],
            tuple(facts["shape"]),
        )
        for name, facts in header.items()
        if facts["dtype"] in _TYPES and is_mapped(math.prod(facts["shape"]))
    }
