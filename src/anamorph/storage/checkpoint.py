"""Checkpoints: all that a fit needs to go on, written after every iteration.

Unlike a model file, a checkpoint holds the latents of the images: it stays where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.fitting.em import State, Turn
from anamorph.fitting.objective import LatentSums
from anamorph.model.settings import Settings
from anamorph.storage.errors import ModelFileError
from anamorph.storage.modelfile import PARAMETER_ARRAYS, parameters_from
from anamorph.storage.tensors import read_tensors, write_tensors

_VERSION = 1


def write_checkpoint(
    path: str | os.PathLike[str], fingerprint: str, state: State, latents: NDArray[np.float64]
) -> None:
    """Write where a fit stands: its state, and the latents (N, K) from before its last turn."""
    arrays, facts = state_tensors(state)
    arrays["latents"] = latents
    write_tensors(path, "checkpoint", _VERSION, arrays, {"fingerprint": fingerprint, **facts})


def read_checkpoint(
    path: str | os.PathLike[str], fingerprint: str
) -> tuple[State, NDArray[np.float64]]:
    """Return the state in a checkpoint of this fit, and the latents from before its turn."""
    arrays, facts = read_tensors(path, "checkpoint", _VERSION)
    check_fingerprint(path, facts, fingerprint)
    return state_from(arrays, facts, len(arrays["latents"])), arrays["latents"]


def check_fingerprint(
    path: str | os.PathLike[str], facts: Mapping[str, Any], fingerprint: str
) -> None:
    """Raise a ModelFileError unless a checkpoint is of the fit that goes on from it."""
    if facts["fingerprint"] != fingerprint:
        raise ModelFileError(
            f"{path} is the checkpoint of a fit with other images or settings; "
            "remove it, or give another path"
        )


def state_tensors(state: State) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the facts that a state consists of: nothing about single images."""
    sums, turn = state.latents, state.turn
    if turn is None:
        raise ValueError("a fit has no checkpoint before its first iteration")
    arrays: dict[str, NDArray[Any]] = {
        name: getattr(state.parameters, name) for name in PARAMETER_ARRAYS
    }
    arrays |= {
        "latent_scatter": sums.scatter,
        "covariance_sum": sums.covariance_sum,
        "transform": turn.transform,
        "shape_basis_before": turn.shape_basis_before,
    }
    facts = {
        "log_determinant_sum": sums.log_determinant_sum,
        "step": state.step,
        "objective": list(state.objective),
        "seconds": list(state.seconds),
    }
    return arrays, facts


def state_from(
    arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], n_images: int
) -> State:
    """Return the state that `state_tensors` took apart."""
    latents = LatentSums(
        n_images, arrays["latent_scatter"], arrays["covariance_sum"], facts["log_determinant_sum"]
    )
    return State(
        parameters_from(arrays),
        latents,
        facts["step"],
        tuple(facts["objective"]),
        Turn(arrays["transform"], arrays["shape_basis_before"]),
        tuple(facts["seconds"]),
    )


def fit_fingerprint(settings: Settings, seed: int, images: str) -> str:
    """Return a short text that stands for the settings and the images (their digest) of a fit."""
    facts = json.dumps([asdict(settings), seed, images])
    return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
