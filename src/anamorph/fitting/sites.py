"""Sites: whoever holds images. `fitting` publishes parameters to them and asks for sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import to_host
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.sums import Sums
from anamorph.model.parameters import Parameters


class Sites(Protocol):
    """One or many sites that answer as one."""

    def publish(self, parameters: Parameters) -> None:
        """Send the parameters that the next questions are about."""
        ...

    def ask(self, question: str, **arguments: Any) -> Sums:
        """Return the sum of all sites' answers to a question of `sums.FIELDS`."""
        ...


class OwnSites(Sites, Protocol):
    """Sites of one owner, whose latents may be seen, and kept in a checkpoint.

    Latents (N, K) are in the order of the images.
    """

    @property
    def namespace(self) -> Any:
        """The module of the arrays in answers: numpy, or cupy on a GPU."""
        ...

    @property
    def latents(self) -> NDArray[np.float64]:
        """Latents of all images."""
        ...

    @property
    def latents_before_turn(self) -> NDArray[np.float64]:
        """Latents of all images before the last orthogonalisation."""
        ...

    def restore(self, latents: NDArray[np.float64]) -> None:
        """Take up latents from a checkpoint."""
        ...

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start."""
        ...


class LocalSites:
    """Cohorts in this process."""

    def __init__(self, cohorts: Sequence[Cohort]) -> None:
        self.cohorts = cohorts

    def publish(self, parameters: Parameters) -> None:
        """Send parameters to every cohort."""
        for cohort in self.cohorts:
            cohort.publish(parameters)

    def ask(self, question: str, **arguments: Any) -> Sums:
        """Return the sum of all cohorts' answers."""
        answers: list[Sums] = [getattr(cohort, question)(**arguments) for cohort in self.cohorts]
        return reduce(add, answers)

    @property
    def namespace(self) -> Any:
        """The module of the arrays in answers: numpy, or cupy on a GPU."""
        return self.cohorts[0].namespace

    @property
    def latents(self) -> NDArray[np.float64]:
        """Latents of all images, (N, K)."""
        return np.concatenate([to_host(cohort.latents) for cohort in self.cohorts])

    @property
    def latents_before_turn(self) -> NDArray[np.float64]:
        """Latents of all images before the last orthogonalisation, (N, K)."""
        return np.concatenate([to_host(cohort.latents_before_turn) for cohort in self.cohorts])

    def restore(self, latents: NDArray[np.float64]) -> None:
        """Give every cohort its rows of latents (N, K) from a checkpoint."""
        bounds = np.cumsum([0, *(len(cohort.images) for cohort in self.cohorts)])
        for cohort, (first, last) in zip(self.cohorts, pairwise(bounds), strict=True):
            cohort.restore(latents[first:last])

    def digest(self) -> str:
        """Return a short text that stands for all images, in their order, and the given start."""
        return "".join(cohort.digest() for cohort in self.cohorts)
