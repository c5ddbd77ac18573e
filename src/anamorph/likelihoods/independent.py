"""Likelihoods whose channels are independent: one formula for a voxel of a channel is all."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Any

import numpy as np

from anamorph.arrays.devices import array_namespace, beside, kernels_for
from anamorph.arrays.typing import Array, Float64Array
from anamorph.likelihoods.base import LOOPS, Derivatives, Likelihood


class IndependentChannels(Likelihood):
    """A likelihood whose channels are independent, and each may be missing on its own.

    Subclasses define `voxel`, which is compiled for processors and GPUs alike.
    """

    @staticmethod
    @abstractmethod
    def voxel(a: float, f: float, weight: float) -> tuple[float, float, float]:
        """Return ln p(f | a'), and the gradient and Hessian of -ln p(f | a').

        Parameters
        ----------
        a, f : float
            The warped appearance a', and the image.
        weight : float
            Precision of the channel; 1 where the likelihood has no noise.
        """

    def n_hessian(self, n_channels: int) -> int:  # noqa: D102
        return n_channels

    def log_likelihood(  # noqa: D102
        self, appearance: Array, images: Array, precision: Array
    ) -> Float64Array:
        return self._log_density(*self._sums(appearance, images, precision), precision)

    def derivatives(self, appearance: Array, images: Array, precision: Array) -> Derivatives:  # noqa: D102
        gradient, hessian = np.empty_like(appearance), np.empty_like(appearance)
        sums = self._sums(appearance, images, precision, gradient, hessian)
        return Derivatives(self._log_density(*sums, precision), gradient, hessian)

    def _sums(
        self, appearance: Array, images: Array, precision: Array, *derivatives: Array
    ) -> tuple[Float64Array, Any]:
        """Return sums over voxels of what `voxel` returns first, and numbers of observed voxels.

        With noise both are (N, C). Without, all channels are alike: the sums are (N, 1), and
        nothing is counted. Gradient and Hessian are filled in if they are given.
        """
        n_images, n_channels = images.shape[:2]
        if self.has_noise:
            weights = beside(images, precision, appearance.dtype)
            values, observed = array_namespace(images).empty((2, n_images, n_channels))
        else:
            n_channels, weights = 1, _one(array_namespace(images), appearance.dtype)
            values, observed = array_namespace(images).empty((n_images, 1)), None
        flat = [array.reshape(n_images, n_channels, -1) for array in (appearance, images)]
        slopes = [array.reshape(n_images, n_channels, -1) for array in derivatives]
        loop = kernels_for(images, LOOPS).channel_loop(self.voxel)
        loop(*flat, weights, values, observed, *(slopes or (None, None)))
        return values, observed

    def _log_density(self, values: Float64Array, observed: Any, precision: Array) -> Float64Array:
        """Return ln p(f | a') per image, (N,), from what `_sums` returns."""
        return values[:, 0]


@cache
def _one(namespace: Any, dtype: Any) -> Any:
    """Return the weight 1 as an array, made once: on a GPU that takes as long as a loop does."""
    return namespace.ones(1, dtype)
