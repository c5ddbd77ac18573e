"""The evidence of held-out images while a model is fitted to others.

The objective of a fit rises as long as it may explain its own images better. What images that
take no part in it say of the model rises with it at first, and may fall later: then the model
learns what is true of its images only, and fewer iterations, fewer latents or firmer penalties are
better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anamorph.arrays.devices import Machine
from anamorph.arrays.typing import ReadableImages
from anamorph.fitting.run import Checkpoints
from anamorph.fitting.state import State
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters, power_of
from anamorph.model.predicting import Predictor
from anamorph.model.settings import Settings


class Validation:
    """The evidence of held-out images, iteration by iteration.

    Parameters
    ----------
    images : ReadableImages
        That the model is not fitted to.
    settings : Settings
        Of the fit on the grid of the images.
    machine : Machine
        Where images are encoded.

    Attributes
    ----------
    evidence : list of float
        Mean log evidence of the images after each iteration; NaN where it is not known: on coarser
        grids, and before a fit was resumed.
    """

    def __init__(self, images: ReadableImages, settings: Settings, machine: Machine) -> None:
        self._images, self._settings, self._machine = images, settings, machine
        self.evidence: list[float] = []

    def around(self, checkpoints: Checkpoints | None, settings: Settings) -> Checkpoints:
        """Return checkpoints that look at the images whenever a state is read or written.

        Parameters
        ----------
        checkpoints : Checkpoints, optional
            Where states are kept; None: nowhere.
        settings : Settings
            Of the grid that states are on.
        """
        return _Watched(self, checkpoints, settings.space == self._settings.space)

    def look(self, state: State, *, is_on_grid: bool) -> None:
        """Find the evidence after the last iteration of a state, unless it is known."""
        n_done = len(state.objective)
        if n_done <= len(self.evidence):
            return
        self.evidence += [math.nan] * (n_done - len(self.evidence))
        if is_on_grid:
            self.evidence[-1] = self._mean_evidence(state.beside(np).parameters)

    def _mean_evidence(self, parameters: Parameters) -> float:
        """Return the mean log evidence of the images, with the noise that they leave themselves.

        Images of the fit leave less, the more latents there are. A finished model has the noise of
        images that it does not know, unless the weight of the likelihood is given.
        """
        settings = self._settings.for_new_images
        predictor = Predictor(Generator(settings, parameters), self._machine)
        if settings.likelihood.has_noise and settings.estimates_weight:
            encoded = predictor.encode(self._images, exact_curvature=False)
            squares, observed = predictor.misfit(self._images, encoded)
            power = power_of(parameters.mean)
            precision = settings.likelihood.noise_precision(squares, observed, power)
            honest = replace(parameters, noise_precision=precision)
            predictor = Predictor(Generator(settings, honest), self._machine)
        return float(predictor.encode(self._images).log_evidence.mean())


@dataclass(frozen=True)
class _Watched:
    """Checkpoints of a fit on one grid, which may be kept nowhere."""

    validation: Validation
    checkpoints: Checkpoints | None
    is_on_grid: bool

    def __str__(self) -> str:
        return str(self.checkpoints)

    def read(self) -> State | None:
        """Return the state to resume from, if there is one."""
        state = None if self.checkpoints is None else self.checkpoints.read()
        if state is not None:
            self.validation.look(state, is_on_grid=self.is_on_grid)
        return state

    def write(self, state: State) -> None:
        """Keep a state, and look at the held-out images."""
        if self.checkpoints is not None:
            self.checkpoints.write(state)
        self.validation.look(state, is_on_grid=self.is_on_grid)


def best_iteration(evidence: Sequence[float]) -> int | None:
    """Return the number of the iteration, from 1, of most evidence; None if none is known."""
    values = np.asarray(evidence, np.float64)
    return int(np.nanargmax(values)) + 1 if np.isfinite(values).any() else None
