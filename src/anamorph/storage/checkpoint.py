"""Checkpoints of a fit whose latents may be seen: on one machine, or on a cluster.

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

from anamorph.fitting.objective import LatentSums
from anamorph.fitting.sites import OwnSites
from anamorph.fitting.state import State, Turn
from anamorph.model.settings import Settings
from anamorph.storage.errors import ModelFileError
from anamorph.storage.modelfile import parameter_arrays, parameters_from
from anamorph.storage.tensors import read_tensors, write_tensors

_VERSION = 1


class CheckpointFile:
    """The checkpoint of a fit in one file (`fitting.run.Checkpoints`).

    Parameters
    ----------
    path : path
        Need not exist yet.
    sites : OwnSites
        Their latents are written, and restored when the file is read.
    settings : Settings
    seed : int
        Of the starting latents. Settings, seed and images say whose checkpoint it is.
    """

    def __init__(
        self, path: str | os.PathLike[str], sites: OwnSites, settings: Settings, seed: int
    ) -> None:
        self._path, self._sites = path, sites
        self._fingerprint = fit_fingerprint(settings, seed, sites.digest())

    def __str__(self) -> str:
        return os.fspath(self._path)

    def read(self) -> State | None:
        """Return the state in the file, and restore the latents; None if there is no file."""
        if not os.path.exists(self._path):
            return None
        arrays, facts = read_tensors(self._path, "checkpoint", _VERSION)
        check_fingerprint(self._path, facts, self._fingerprint)
        self._sites.restore(arrays["latents"])
        return state_from(arrays, facts, len(arrays["latents"])).beside(self._sites.namespace)

    def write(self, state: State) -> None:
        """Write the state, and the latents (N, K) from before its turn.

        The start is not written: starting again takes no longer than the first question.
        """
        if state.turn is None:
            return
        arrays, facts = state_tensors(state.beside(np))
        arrays["latents"] = self._sites.latents_before_turn
        facts["fingerprint"] = self._fingerprint
        write_tensors(self._path, "checkpoint", _VERSION, arrays, facts)


def fit_fingerprint(settings: Settings, *facts: int | str, n_bytes: int = 16) -> str:
    """Return a short text that stands for a fit: its settings, and facts such as the seed."""
    text = json.dumps([asdict(settings), *facts])
    return hashlib.blake2b(text.encode(), digest_size=n_bytes).hexdigest()


def check_fingerprint(
    path: str | os.PathLike[str], facts: Mapping[str, Any], fingerprint: str
) -> None:
    """Raise a ModelFileError unless a checkpoint is of the fit that resumes from it."""
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
        **parameter_arrays(state.parameters),
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
