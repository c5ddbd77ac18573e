"""Checkpoints: all that a fit needs to go on, written after every iteration.

Unlike a model file, a checkpoint holds the latents of the images: it stays where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.fitting import State, Turn
from anamorph.io.errors import ModelFileError
from anamorph.io.modelfile import PARAMETER_ARRAYS, parameters_from
from anamorph.io.tensors import read_tensors, write_tensors
from anamorph.objective import LatentSums
from anamorph.settings import Settings

_VERSION = 1


def write_checkpoint(
    path: str | os.PathLike[str], fingerprint: str, state: State, latents: NDArray[np.float64]
) -> None:
    """Write where a fit stands: its state, and the latents (N, K) from before its last turn."""
    sums, turn = state.latents, state.turn
    if turn is None:
        raise ValueError("a fit has no checkpoint before its first iteration")
    arrays: dict[str, NDArray[Any]] = {
        name: getattr(state.parameters, name) for name in PARAMETER_ARRAYS
    }
    arrays |= {
        "latents": latents,
        "latent_scatter": sums.scatter,
        "covariance_sum": sums.covariance_sum,
        "transform": turn.transform,
        "shape_basis_before": turn.shape_basis_before,
    }
    facts = {
        "fingerprint": fingerprint,
        "log_determinant_sum": sums.log_determinant_sum,
        "step": state.step,
        "objective": list(state.objective),
        "seconds": list(state.seconds),
    }
    write_tensors(path, "checkpoint", _VERSION, arrays, facts)


def read_checkpoint(
    path: str | os.PathLike[str], fingerprint: str
) -> tuple[State, NDArray[np.float64]]:
    """Return the state in a checkpoint of this fit, and the latents from before its turn."""
    arrays, facts = read_tensors(path, "checkpoint", _VERSION)
    if facts["fingerprint"] != fingerprint:
        raise ModelFileError(
            f"{path} is the checkpoint of a fit with other images or settings; "
            "remove it, or give another path"
        )
    latents = LatentSums(
        len(arrays["latents"]),
        arrays["latent_scatter"],
        arrays["covariance_sum"],
        facts["log_determinant_sum"],
    )
    state = State(
        parameters_from(arrays),
        latents,
        facts["step"],
        tuple(facts["objective"]),
        Turn(arrays["transform"], arrays["shape_basis_before"]),
        tuple(facts["seconds"]),
    )
    return state, arrays["latents"]


def fit_fingerprint(settings: Settings, seed: int, images: str) -> str:
    """Return a short text that stands for the settings and the images (their digest) of a fit."""
    facts = json.dumps([asdict(settings), seed, images])
    return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
