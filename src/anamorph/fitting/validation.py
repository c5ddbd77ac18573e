"""The evidence of held-out images while a model is fitted to others.

The objective of a fit rises as long as it may explain its own images better. What images that
take no part in it say of the model rises with it at first, and may fall later: then the model
learns what is true of its images only, and fewer iterations, fewer latents or firmer penalties are
better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anamorph.arrays.devices import Machine
from anamorph.arrays.typing import ReadableImages
from anamorph.fitting.run import Checkpoints
from anamorph.fitting.state import State
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor
from anamorph.model.settings import Settings


class Validation:
    """Checkpoints of a fit that look at held-out images whenever a state is written.

    Parameters
    ----------
    images : ReadableImages
        That the model is not fitted to.
    settings : Settings
        Of the fit.
    machine : Machine
        Where images are encoded.
    checkpoints : Checkpoints, optional
        Where states are kept; by default nowhere.

    Attributes
    ----------
    evidence : list of float
        Mean log evidence of the images after each iteration; NaN where it is not known, since the
        fit was resumed after that iteration.
    """

    def __init__(
        self,
        images: ReadableImages,
        settings: Settings,
        machine: Machine,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._images, self._settings, self._machine = images, settings, machine
        self._checkpoints = checkpoints
        self.evidence: list[float] = []

    def __str__(self) -> str:
        return str(self._checkpoints)

    def read(self) -> State | None:
        """Return the state to resume from, if there is one."""
        state = None if self._checkpoints is None else self._checkpoints.read()
        if state is not None:
            self.evidence = [math.nan] * len(state.objective)
            self._look(state)
        return state

    def write(self, state: State) -> None:
        """Keep a state, and look at the held-out images."""
        if self._checkpoints is not None:
            self._checkpoints.write(state)
        if state.objective:
            self.evidence.append(math.nan)
            self._look(state)

    def _look(self, state: State) -> None:
        if state.objective:
            parameters = state.beside(np).parameters
            generator = Generator(self._settings.for_new_images, parameters)
            encoded = Predictor(generator, self._machine).encode(self._images)
            self.evidence[-1] = float(encoded.log_evidence.mean())


def best_iteration(evidence: Sequence[float]) -> int | None:
    """Return the number of the iteration, from 1, of most evidence; None if none is known."""
    values = np.asarray(evidence, np.float64)
    return int(np.nanargmax(values)) + 1 if np.isfinite(values).any() else None
