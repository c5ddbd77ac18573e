"""Named arrays and plain facts in one file: safetensors with JSON beside, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from anamorph.io.errors import ModelFileError
from anamorph.io.whole import whole_file

_KEY = "anamorph"


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    arrays: dict[str, NDArray[Any]],
    facts: dict[str, Any],
) -> None:
    """Write arrays and facts to a file, by way of a temporary one that then takes its place.

    Whatever happens meanwhile, the file is the old one or the new one, never half of it.

    Parameters
    ----------
    path : path
    kind : str
        What the file is, e.g. "model".
    version : int
        Version of the format of this kind.
    arrays : dict of arrays
    facts : dict
        Anything that JSON can hold.
    """
    path = Path(path)
    header = json.dumps({"kind": kind, "version": version, "facts": facts})
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        with whole_file(path) as temporary:
            save_file(contiguous, temporary, metadata={_KEY: header})
    except FileNotFoundError as error:
        raise ModelFileError(str(error)) from None


def read_tensors(
    path: str | os.PathLike[str], kind: str, newest_version: int
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and facts of a file, or raise a ModelFileError that says what is wrong."""
    path = Path(path)
    if not path.exists():
        raise ModelFileError(f"{path} does not exist")
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a {kind} file")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(_KEY, "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
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
