"""Likelihoods whose channels are independent: one formula for a voxel of a channel is all."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from anamorph.arrays.namespaces import array_namespace, beside, kernels_for
from anamorph.likelihoods.base import LOOPS, Array, Derivatives, Float64Array, Likelihood, flat


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
        sums = self._sums(appearance, images, precision, flat(gradient), flat(hessian))
        return Derivatives(self._log_density(*sums, precision), gradient, hessian)

    def _sums(
        self,
        appearance: Array,
        images: Array,
        precision: Array,
        gradient: Array | None = None,
        hessian: Array | None = None,
    ) -> tuple[Float64Array, Any]:
        """Return the sums (N, C) of what `voxel` returns first, and numbers of observed voxels.

        The latter are None unless there is noise. Derivatives are filled in where there is room.
        """
        xp, sizes = array_namespace(images), images.shape[:2]
        if self.has_noise:
            weights = beside(images, precision, appearance.dtype)
            values, observed = xp.empty((2, *sizes))
        else:
            weights = xp.ones(sizes[1], appearance.dtype)
            values, observed = xp.empty(sizes), None
        loop = kernels_for(images, LOOPS).channel_loop(self.voxel)
        loop(flat(appearance), flat(images), weights, values, observed, gradient, hessian)
        return values, observed

    def _log_density(self, values: Float64Array, observed: Any, precision: Array) -> Float64Array:
        """Return ln p(f | a') per image, (N,), from what `_sums` returns."""
        summed: Float64Array = values.sum(axis=1)
        return summed
