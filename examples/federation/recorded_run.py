"""An honest fit as its coordinator sees it: parameters, moves and totals, and nothing else.

`record` fits a model and keeps what the totals tell about the images, by formulas that anybody can
write down who knows the parameters:

- the total of the images, from "moments";
- from every "appearance_derivatives", sums of the images weighted by latents, Z'F: the gradient is
  Z'(expected images - F), and of expected images the coordinator knows mean, modes, Z'1 and Z'Z;
- after the first update of the latents, a matrix B with Z = F B, to first order: an update is a
  regularised regression of an image on the modes. Then Z'F = B'F'F tells second moments of the
  images in directions B, other ones in every iteration.

Without warps and with Gaussian noise all this is exact. Otherwise it is an approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.run import Ending, run_fit
from anamorph.fitting.sites import LocalSites
from anamorph.fitting.sums import Move, Sums
from anamorph.images.arrays import ArrayImages
from anamorph.latents import prior_precision
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings, checked_settings

Array = NDArray[np.float64]

_SMALL_LATENT = 0.05  # for difference quotients


@dataclass
class Seen:
    """What a coordinator has worked out from totals.

    Attributes
    ----------
    n_images : int
        N.
    mean : (V,)
        Mean of the images.
    mixtures : list of (K, V)
        Z'F, with F less its mean, one for each time that derivatives were asked for.
    directions : list of (V, K) or None
        B with Z = F B for each of them; None before the first update of the latents.
    """

    n_images: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(0))
    mixtures: list[Array] = field(default_factory=list)
    directions: list[Array | None] = field(default_factory=list)


class RecordingSites(LocalSites):
    """Sites whose coordinator keeps what it learns from their totals.

    Parameters
    ----------
    cohorts : list of Cohort
    settings : Settings
    change : callable, optional
        What a colluding site makes of a total, given the name of the question. By default nothing.
    """

    def __init__(
        self,
        cohorts: list[Cohort],
        settings: Settings,
        change: Callable[[str, Sums], Sums] | None = None,
    ) -> None:
        super().__init__(cohorts)
        self.seen = Seen()
        self._settings, self._change = settings, change
        self._parameters: Parameters | None = None
        self._directions: Array | None = None

    def publish(self, parameters: Parameters) -> None:
        """Send parameters to every cohort."""
        self._parameters = parameters
        super().publish(parameters)

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all cohorts' answers, after a look at it."""
        sums = super().ask(question, move, **arguments)
        if move is not None and self._directions is not None:
            self._directions = self._directions @ move.matrix.T
        if question == "moments":
            self.seen.n_images = sums.n_images
            self.seen.mean = sums["total"].reshape(-1) / sums.n_images
        elif question == "update_latents":
            self._directions = self._regression()
        elif question == "appearance_derivatives":
            self._look_at(sums)
        return sums if self._change is None else self._change(question, sums)

    def _look_at(self, sums: Sums) -> None:
        """Keep Z'F, from Z'(expected images - F)."""
        parameters, latents = self._known(), self.latents
        # The coordinator has these two as answers to "start_latents" and "update_latents", moved.
        latent_sum, scatter = latents.sum(axis=0), latents.T @ latents
        expected, slope, weight = self._expected(parameters)
        modes = parameters.appearance_basis.reshape(len(scatter), -1).astype(np.float64)
        gradient = sums["gradient"].reshape(len(scatter), -1) / weight
        mixture = np.outer(latent_sum, expected) + scatter @ (slope * modes) - gradient
        self.seen.mixtures.append(mixture - np.outer(latent_sum, self.seen.mean))
        self.seen.directions.append(self._directions)

    def _regression(self) -> Array:
        """Return B (V, K): latents are B'(image - mean), to first order around the mean."""
        parameters, settings = self._known(), self._settings
        generator = Generator(settings, parameters)
        n_latents = settings.layout.n_latents
        latents = _SMALL_LATENT * np.concatenate([np.eye(n_latents), -np.eye(n_latents)])
        warped = generator.warp(generator.appearance(latents), generator.displacement(latents))
        plus, minus = np.asarray(warped, np.float64).reshape(2, n_latents, -1)
        modes = (plus - minus) / (2 * _SMALL_LATENT)
        _, slope, weight = self._expected(parameters)
        hessian = weight * (modes * slope) @ modes.T
        prior = prior_precision(
            parameters.latent_precision, parameters.basis_energy, settings.balance
        )
        return np.asarray(np.linalg.solve(hessian + prior, weight * modes).T)

    def _expected(self, parameters: Parameters) -> tuple[Array, Array, float]:
        """Return the image that the mean expects, its slope, and the weight of residuals."""
        mean = parameters.mean.reshape(-1).astype(np.float64)
        if self._settings.likelihood.has_noise:
            return mean, np.ones_like(mean), float(parameters.noise_precision[0])
        expected = np.asarray(self._settings.likelihood.expectation(mean), np.float64)
        return expected, expected * (1 - expected), 1.0

    def _known(self) -> Parameters:
        if self._parameters is None:
            raise RuntimeError("parameters must be published before questions are asked")
        return self._parameters


def record(
    images: NDArray[np.floating],
    model: ShapeAppearanceModel,
    change: Callable[[str, Sums], Sums] | None = None,
) -> Seen:
    """Fit a model to images of one channel, and return what the coordinator learns.

    Parameters
    ----------
    images : (N, *space)
    model : ShapeAppearanceModel
        Its settings; it is not fitted.
    change : callable, optional
        What a colluding site makes of a total. By default nothing.

    Returns
    -------
    Seen
    """
    collection = ArrayImages(images, model.likelihood)
    arguments = model.get_params(deep=False)
    settings = checked_settings(arguments, collection.format, len(images))
    cohort = Cohort(collection, settings, range(len(images)))
    sites = RecordingSites([cohort], settings, change)
    run_fit(Fit(sites, settings), 0, Ending(model.n_iter, None), tell=lambda progress: None)
    return sites.seen


def with_added(sums: Sums, **added: Any) -> Sums:
    """Return a total to which a site has added something."""
    fields = {
        name: value + added[name] if name in added else value for name, value in sums.fields.items()
    }
    return replace(sums, fields=fields)
