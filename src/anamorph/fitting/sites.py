"""Sites: whoever holds images. A fit publishes parameters to them, and asks them for sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Float32Array, Float64Array
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.sums import Move, Sums
from anamorph.model.parameters import Parameters


class Sites(Protocol):
    """One or many sites that answer as one."""

    def publish(self, parameters: Parameters) -> None:
        """Send the parameters that the next questions are about."""

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all sites' answers to a question.

        Parameters
        ----------
        question : str
            One of `sums.FIELDS`.
        move : Move, optional
            Of the latents, which sites make first.
        **arguments
            Of the question.
        """


class OwnSites(Sites, Protocol):
    """Sites of one owner, who may see their latents and keep them in a checkpoint.

    Latents (N, K) are in the order of the images.
    """

    @property
    def namespace(self) -> Any:
        """The module of the arrays in answers: numpy, or cupy on a GPU."""

    @property
    def latents(self) -> Float64Array:
        """Latents of all images."""

    @property
    def latents_before_turn(self) -> Float64Array:
        """Latents of all images before the last orthogonalisation."""

    @property
    def poses(self) -> Float64Array:
        """Poses of all images, (N, P); P is 0 where they have none."""

    @property
    def residuals(self) -> Float32Array | None:
        """Residual velocities of all images, (N, d, *space); None where they have none."""

    def restore(
        self,
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Float32Array | None = None,
    ) -> None:
        """Take latents (N, K), and poses and residual velocities if any, from a checkpoint."""

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start."""

    def close(self) -> None:
        """Let go of all that is kept of the images; nothing more is asked."""


class LocalSites:
    """Cohorts in this process."""

    def __init__(self, cohorts: Sequence[Cohort]) -> None:
        self.cohorts = cohorts

    def publish(self, parameters: Parameters) -> None:
        """Send parameters to every cohort."""
        for cohort in self.cohorts:
            cohort.publish(parameters)

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all cohorts' answers."""
        return reduce(add, [cohort.answer(question, move, **arguments) for cohort in self.cohorts])

    @property
    def namespace(self) -> Any:
        """The module of the arrays in answers: numpy, or cupy on a GPU."""
        return self.cohorts[0].namespace

    @property
    def latents(self) -> Float64Array:
        """Latents of all images, (N, K)."""
        return np.concatenate([to_host(cohort.latents) for cohort in self.cohorts])

    @property
    def latents_before_turn(self) -> Float64Array:
        """Latents of all images before the last orthogonalisation, (N, K)."""
        return np.concatenate([to_host(cohort.latents_before_turn) for cohort in self.cohorts])

    @property
    def poses(self) -> Float64Array:
        """Poses of all images, (N, P)."""
        return np.concatenate([cohort.poses for cohort in self.cohorts])

    @property
    def residuals(self) -> Float32Array | None:
        """Residual velocities of all images, (N, d, *space); None where they have none."""
        parts = [cohort.residuals for cohort in self.cohorts if cohort.residuals is not None]
        if len(parts) == 1:
            return parts[0]  # perhaps too large to copy
        return np.concatenate(parts) if parts else None

    def restore(
        self,
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Float32Array | None = None,
    ) -> None:
        """Give every cohort its rows of what a checkpoint holds, see `OwnSites.restore`."""
        bounds = np.cumsum([0, *(len(cohort.images) for cohort in self.cohorts)])
        for cohort, (first, last) in zip(self.cohorts, pairwise(bounds), strict=True):
            own = slice(first, last)
            cohort.restore(
                latents[own],
                None if poses is None else poses[own],
                None if residuals is None else residuals[own],
            )

    def digest(self) -> str:
        """Return a short text that stands for all images, in their order, and the given start."""
        return "".join(cohort.digest() for cohort in self.cohorts)

    def close(self) -> None:
        """Let go of the cohorts."""
        self.cohorts = ()
