"""Named arrays and JSON facts in one safetensors file, written completely or not at all.

A checksum of the arrays and the facts is written with them, and compared when they are read. Files
of version 0.1 have none, and are read without it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from anamorph.arrays.mapped import let_go
from anamorph.images.errors import short_reason
from anamorph.storage.errors import ModelFileError
from anamorph.storage.replace import check_folder, replacing

_KEY = "anamorph"
_TYPES = {"F32": np.float32, "F64": np.float64}
_OLD_KEYS = {"kind", "version", "facts"}  # of version 0.1
_KEYS = _OLD_KEYS | {"checksum"}
_DIGEST_BYTES = 16
_BLOCK_BYTES = 2**26


class Tensors(NamedTuple):
    """What is in a file, as `open_tensors` finds it.

    Attributes
    ----------
    kind : str
        Kind of file, e.g. "model".
    version : int
        Version of the format of this kind.
    arrays : dict of arrays
    facts : dict
    has_checksum : bool
        Whether the file has a checksum, which is then right; files of version 0.1 have none.
    """

    kind: str
    version: int
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]
    has_checksum: bool


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
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    checksum = _digest(kind, version, contiguous, facts)
    header = {"kind": kind, "version": version, "facts": facts, "checksum": checksum}
    check_folder(path)
    with replacing(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={_KEY: json.dumps(header)})
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
    found = open_tensors(path, {kind: newest_version}, is_mapped)
    return found.arrays, found.facts


def open_tensors(
    path: str | os.PathLike[str],
    newest_versions: Mapping[str, int],
    is_mapped: Callable[[int], bool] = lambda _: False,
) -> Tensors:
    """Do what `read_tensors` does, for a file of one of several kinds.

    Parameters
    ----------
    path : path
    newest_versions : dict of int
        Newest version of the format that can be read, by the kind of file.
    is_mapped : callable, optional
        As for `read_tensors`.

    Returns
    -------
    Tensors
    """
    path, kinds = Path(path), " or ".join(newest_versions)
    if not path.exists():
        raise ModelFileError(f"{path} does not exist")
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a {kinds} file")
    if not path.is_file():
        raise ModelFileError(f"{path} is a device or a pipe, not a {kinds} file")
    # What a damaged header makes of safetensors and NumPy: a type that does not exist, an array
    # too large, a text that is not Unicode.
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(_KEY, "null"))
            arrays = _mapped_tensors(path, is_mapped)
            names = file.keys() - arrays.keys()
            arrays |= {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, MemoryError) as error:
        raise ModelFileError(
            f"{path} is not a {kinds} file of anamorph, or it is truncated ({short_reason(error)})"
        ) from None
    kind, version, facts, checksum = _checked_header(path, header, newest_versions)
    if checksum is not None and checksum != _digest(kind, version, arrays, facts):
        raise ModelFileError(
            f"{path} is damaged: its checksum is not that of its contents; copy it again, or make "
            "it again"
        )
    return Tensors(kind, version, arrays, facts, checksum is not None)


def _checked_header(
    path: Path, header: Any, newest_versions: Mapping[str, int]
) -> tuple[str, int, dict[str, Any], str | None]:
    """Return kind, version, facts and checksum (None in old files), or raise a ModelFileError."""
    is_complete = isinstance(header, dict) and header.keys() >= _OLD_KEYS
    kinds = " or ".join(newest_versions)
    if not is_complete or header["kind"] not in list(newest_versions):
        raise ModelFileError(f"{path} is not a {kinds} file of anamorph")
    kind, version, facts = header["kind"], header["version"], header["facts"]
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{path} is damaged: its format version is {version!r}")
    if version > newest_versions[kind]:
        raise ModelFileError(
            f"{path} has format version {version}, and this version of anamorph reads "
            f"up to {newest_versions[kind]}: upgrade anamorph"
        )
    # A checksum whose name is damaged must not make a new file look like an old one.
    if header.keys() not in (_OLD_KEYS, _KEYS) or not isinstance(facts, dict):
        raise ModelFileError(f"{path} is damaged: its header has entries that do not belong there")
    return kind, version, facts, str(header["checksum"]) if "checksum" in header else None


def _digest(
    kind: str, version: int, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> str:
    """Return a checksum of arrays, with their names, types and shapes, and of facts."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(json.dumps([kind, version, facts]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for first in range(0, len(values), _BLOCK_BYTES):
            digest.update(values[first : first + _BLOCK_BYTES].data)
            let_go(array)  # a mapped one may be larger than memory
    return digest.hexdigest()


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
