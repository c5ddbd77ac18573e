"""Verification of a stored file of any kind: is it whole, and can what it holds be used."""

from __future__ import annotations

import os
from dataclasses import dataclass

from anamorph.storage import checkpoint, modelfile
from anamorph.storage.contents import ContentError, check_finite
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import open_tensors

#: Kinds of files that are written, with the newest version of each that can be read.
KINDS = {
    modelfile.KIND: modelfile.VERSION,
    checkpoint.KIND: checkpoint.VERSION,
    "federation checkpoint": 1,
    "site latents": 1,
    "latents": 2,
}


@dataclass(frozen=True)
class Verified:
    """What a file is that was found to be whole.

    Attributes
    ----------
    kind : str
        E.g. "model".
    version : int
        Version of its format.
    has_checksum : bool
        Whether a checksum was compared; files of version 0.1 have none.
    n_arrays : int
    n_bytes : int
        Of the arrays.
    n_iterations : int or None
        Iterations of the fit that wrote it; None where the file does not say.
    """

    kind: str
    version: int
    has_checksum: bool
    n_arrays: int
    n_bytes: int
    n_iterations: int | None


def verify_file(path: str | os.PathLike[str]) -> Verified:
    """Return what a model, checkpoint or file of latents is, or raise a ModelFileError.

    Parameters
    ----------
    path : path

    Returns
    -------
    Verified

    Raises
    ------
    ModelFileError
        If the file is damaged, or none of anamorph's.
    """
    found = open_tensors(path, KINDS)
    if found.kind == modelfile.KIND:
        modelfile.model_from(path, found.arrays, found.facts)
    elif found.kind in (checkpoint.KIND, "federation checkpoint"):
        has_latents = found.kind == checkpoint.KIND
        checkpoint.check_state(path, found.arrays, found.facts, has_latents=has_latents)
    else:
        try:
            for name, array in found.arrays.items():
                check_finite(name, array)
        except ContentError as error:
            raise ModelFileError(f"{path} is damaged: {error}") from None
    return Verified(
        found.kind,
        found.version,
        found.has_checksum,
        len(found.arrays),
        sum(array.nbytes for array in found.arrays.values()),
        len(found.facts["objective"]) if "objective" in found.facts else None,
    )
