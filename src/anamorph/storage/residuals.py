"""Residual velocities of images, in a file beside the table of their latents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anamorph.arrays.typing import Float32Array
from anamorph.images.errors import short_reason
from anamorph.storage.contents import ContentError, check_arrays
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import read_tensors, write_tensors

KIND, VERSION = "residuals", 1
_SUFFIX = ".residuals.safetensors"


def residuals_path(table: str | os.PathLike[str]) -> Path:
    """Return where the residual velocities of the images of a table of latents are."""
    path = Path(table)
    return path.with_name(path.stem + _SUFFIX)


def write_residuals(
    path: str | os.PathLike[str],
    names: Sequence[str],
    residuals: Float32Array,
    fingerprint: str,
) -> None:
    """Write residual velocities (N, d, *space) of images with names, and of which model they are.

    Parameters
    ----------
    path : path
    names : N strings
    residuals : array of shape (N, d, *space)
    fingerprint : str
        Of the parameters of the model: see `Parameters.fingerprint`.
    """
    facts = {"names": list(names), "model": fingerprint}
    write_tensors(path, KIND, VERSION, {"residuals": residuals}, facts)


def read_residuals(
    path: str | os.PathLike[str],
    names: Sequence[str],
    space: tuple[int, ...],
    fingerprint: str,
) -> Float32Array:
    """Return the residual velocities (N, d, *space) of images with names, in their order.

    Parameters
    ----------
    path : path
    names : N strings
        Of a table of latents: there must be an entry for each.
    space : tuple of int
        Shape of the grid of the model.
    fingerprint : str
        Of the parameters of the model.

    Raises
    ------
    ModelFileError
        If the file is missing or damaged, of another grid or model, or lacks an image.
    """
    if not os.path.exists(path):
        raise ModelFileError(
            f"{path} does not exist: 'anamorph encode --residual' writes it with the table"
        )
    arrays, facts = read_tensors(path, KIND, VERSION)
    try:
        stored = facts.get("names")
        if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
            raise ContentError("it lacks the names of the images")
        if facts.get("model") != fingerprint:
            raise ContentError(
                "it is of another model, or does not say of which: encode the images with this one"
            )
        shape = (len(stored), len(space), *space)
        check_arrays(arrays, {"residuals": (shape, np.float32)})
        places = {name: number for number, name in enumerate(stored)}
        missing = [name for name in names if name not in places]
        if missing:
            raise ContentError(f"it has no image {missing[0]}, which the table has")
    except ContentError as error:
        raise ModelFileError(f"{path} cannot be used: {short_reason(error)}") from None
    residuals: Float32Array = arrays["residuals"]
    numbers = [places[name] for name in names]
    return residuals if numbers == list(range(len(residuals))) else residuals[numbers]
