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
from anamorph.images.errors import short_reason
from anamorph.model.hyperparameters import INSIDE
from anamorph.model.settings import Settings
from anamorph.storage.contents import (
    ContentError,
    Sizes,
    check_arrays,
    check_number,
    check_numbers,
    check_parameters,
    check_symmetric,
    format_version,
)
from anamorph.storage.errors import ModelFileError
from anamorph.storage.modelfile import checked_begins, parameter_arrays, parameters_from
from anamorph.storage.tensors import read_tensors, write_tensors

KIND, VERSION = "checkpoint", 3  # 2 without residual warps, 1 where images have no poses either


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
    n_images : int
        How many rows the latents must have.
    n_levels : int, default 1
        Number of grids of the fit. The settings are those of the present one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sites: OwnSites,
        settings: Settings,
        seed: int,
        n_images: int,
        n_levels: int = 1,
    ) -> None:
        self._path, self._sites, self._settings = path, sites, settings
        self._n_images = n_images
        facts = (seed, sites.digest()) if n_levels == 1 else (seed, sites.digest(), n_levels)
        self._fingerprint = fit_fingerprint(settings, *facts)

    def __str__(self) -> str:
        return os.fspath(self._path)

    def read(self) -> State | None:
        """Return the state in the file, and restore the latents; None if there is no file."""
        if not os.path.exists(self._path):
            return None
        arrays, facts = read_tensors(self._path, KIND, VERSION)
        check_fingerprint(self._path, facts, self._fingerprint)
        check_state(self._path, arrays, facts, self._settings, n_images=self._n_images)
        self._sites.restore(arrays["latents"], arrays.get("poses"), arrays.get("residuals"))
        return state_from(arrays, facts, len(arrays["latents"])).beside(self._sites.namespace)

    def write(self, state: State) -> None:
        """Write the state, and the latents (N, K) from before its turn.

        The start is not written: starting again takes no longer than the first question.
        """
        if state.turn is None:
            return
        arrays, facts = state_tensors(state.beside(np))
        arrays["latents"] = self._sites.latents_before_turn
        if self._settings.has_poses:
            arrays["poses"] = self._sites.poses
        if self._settings.residual == INSIDE and self._sites.residuals is not None:
            arrays["residuals"] = self._sites.residuals
        facts["fingerprint"] = self._fingerprint
        version = format_version(self._settings)
        write_tensors(self._path, KIND, version, arrays, facts)


def stored_level(path: str | os.PathLike[str] | None, n_levels: int) -> int:
    """Return the number of the grid, from 0, that a fit resumes on: 0 without a checkpoint.

    Parameters
    ----------
    path : path or None
        Need not exist.
    n_levels : int
        Of the fit that resumes.
    """
    if path is None or n_levels == 1 or not os.path.exists(path):
        return 0
    _, facts = read_tensors(path, KIND, VERSION)
    begins = facts.get("level_begins", [0])
    return (min(n_levels, len(begins)) if isinstance(begins, list) else 1) - 1


def fit_fingerprint(settings: Settings, *facts: int | str, n_bytes: int = 16) -> str:
    """Return a short text that stands for a fit: its settings, and facts such as the seed."""
    named = asdict(settings)
    if not settings.has_poses:
        del named["align"]  # as in fits of before there were poses, which resume
    if not settings.has_residuals:
        del named["residual"]  # likewise
    if not settings.matches_intensities:
        del named["intensity"]  # the same
    text = json.dumps([named, *facts])
    return hashlib.blake2b(text.encode(), digest_size=n_bytes).hexdigest()


def check_fingerprint(
    path: str | os.PathLike[str], facts: Mapping[str, Any], fingerprint: str
) -> None:
    """Raise a ModelFileError unless a checkpoint is of the fit that resumes from it."""
    if facts.get("fingerprint") != fingerprint:
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
    if len(state.level_begins) > 1:
        facts["level_begins"] = list(state.level_begins)
    if state.residual_weight is not None:
        facts["residual_weight"] = state.residual_weight
    return arrays, facts


def check_state(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    settings: Settings | None = None,
    *,
    n_images: int | None = None,
    has_latents: bool = True,
) -> None:
    """Raise a ModelFileError unless arrays and facts are those of a state of a fit.

    Parameters
    ----------
    path : path
        What errors call the file.
    arrays : dict of arrays
    facts : dict
    settings : Settings, optional
        Of the fit; by default arrays only have to agree with each other.
    n_images : int, optional
        How many rows the latents must have; by default any number.
    has_latents : bool
        Whether there are latents too; by default there are.
    """
    try:
        sizes = Sizes.of_arrays(arrays) if settings is None else Sizes.of_settings(settings)
        square = ((sizes.n_latents, sizes.n_latents), np.float64)
        shapes = sizes.parameter_shapes()
        expected: dict[str, tuple[tuple[int, ...], type]] = shapes | {
            **dict.fromkeys(("latent_scatter", "covariance_sum", "transform"), square),
            "shape_basis_before": shapes["shape_basis"],
        }
        if has_latents:
            rows = arrays["latents"].shape[:1] if n_images is None else (n_images,)
            expected["latents"] = ((*rows, sizes.n_latents), np.float64)
            if sizes.has_background:
                n_poses = arrays["poses"].shape[1:]
                if settings is not None:
                    n_poses = (settings.frame.n_coordinates,)
                expected["poses"] = ((*rows, *n_poses), np.float64)
            is_inside = settings is not None and settings.residual == INSIDE
            if is_inside or (settings is None and "residuals" in arrays):
                n_dims = len(sizes.space)
                expected["residuals"] = ((*rows, n_dims, *sizes.space), np.float32)
        check_arrays(arrays, expected)
        check_parameters(arrays)
        check_symmetric("latent_scatter", arrays["latent_scatter"])
        check_symmetric("covariance_sum", arrays["covariance_sum"])
        check_number("log_determinant_sum", facts["log_determinant_sum"])
        if not 0 < check_number("step", facts["step"]) <= 1:
            raise ContentError(f"step must be above 0 and at most 1, got {facts['step']!r}")
        objective = check_numbers("objective", facts["objective"])
        if len(check_numbers("seconds", facts["seconds"], lowest=0.0)) != len(objective):
            raise ContentError("objective and seconds must have one value per iteration")
        checked_begins(facts.get("level_begins", [0]))
        if not 0 < check_number("residual_weight", facts.get("residual_weight", 1.0)) <= 1:
            raise ContentError("residual_weight must be above 0 and at most 1")
    except (ContentError, KeyError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else short_reason(error)
        raise ModelFileError(
            f"{path} is damaged, or was made by something else: {what}; remove it to start again"
        ) from None


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
        residual_weight=facts.get("residual_weight"),
        level_begins=tuple(facts.get("level_begins", (0,))),
    )
