"""What a likelihood is: ln p(f | a') of images f given the warped appearance a', voxel by voxel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]


def flat(images: Array) -> Array:
    """Return images (N, C, *space) as (N, C, voxel)."""
    return images.reshape(*images.shape[:2], -1)


@dataclass(frozen=True)
class Derivatives:
    """Values and derivatives of J = -ln p(f | a') with respect to a', for N images.

    Attributes
    ----------
    log_likelihood : (N,) float64
    gradient : (N, C, *space)
    hessian : (N, P, *space)
        One value per channel (P = C), or the C x C matrix of each voxel, packed (P = C(C+1)/2).
    """

    log_likelihood: Float64Array
    gradient: Array
    hessian: Array


class Likelihood(ABC):
    """ln p(f | a') and its derivatives; NaN in f means missing, and contributes nothing."""

    name: str

    #: Added to the pushed Hessian of the shape update, to keep it positive.
    shape_loading: float = 0.0

    #: Whether there is a noise variance to estimate.
    has_noise: bool = False

    #: Weights of "shape", "appearance" and "mean" where nobody gives any: see `settings`.
    default_penalties: ClassVar[Mapping[str, tuple[float, ...]]]

    @abstractmethod
    def n_hessian(self, n_channels: int) -> int:
        """Return P, the number of values in which the Hessian of a voxel is packed."""

    @abstractmethod
    def log_likelihood(self, appearance: Array, images: Array, precision: Array) -> Float64Array:
        """Return ln p(f | a') per image, (N,).

        Parameters
        ----------
        appearance : (N, C, *space)
            The warped appearance a'.
        images : (N, C, *space)
            The images f, NaN where missing.
        precision : (C,)
            Inverse noise variance per channel, where the likelihood has one.
        """

    @abstractmethod
    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:
        """Return ln p(f | a'), and the gradient and Hessian of -ln p(f | a')."""

    @abstractmethod
    def expectation(self, appearance: Array) -> Array:
        """Return the expected image E[f | a'], (N, C, *space)."""

    @abstractmethod
    def mean_derivatives(
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        """Return gradient and Hessian of a mean without warps, from sums over images.

        Parameters
        ----------
        mean : (C, *space)
        count, total : (C, *space)
            How many images observe each voxel, and the sum of what they observe.
        precision : (C,)

        Returns
        -------
        gradient : (C, *space)
        hessian : (P, *space)
        """

    def remove_redundancy(self, appearance: Array) -> Array:
        """Return an appearance (..., C, *space) without directions that change no image."""
        return appearance
