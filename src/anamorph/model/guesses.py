"""First guesses of the latents of an image: by regression on images that the model itself draws.

Latents are about a polynomial of second degree in the image. Its coefficients are those of a ridge
regression on drawn images, which need only the products of images with each other (a kernel):

    z = sum_m a_m (1 + x . x_m / s)^2

where x is an image less the mean of drawn ones, and s the median of |x_m|^2. Without warps there
is but one optimum, and what is linear in the image is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, is_on_device
from anamorph.arrays.typing import Array, Float64Array
from anamorph.latents import ridge_weights
from anamorph.likelihoods.base import Likelihood


@dataclass(frozen=True)
class Regression:
    """Latents of images, as images with known latents tell.

    Attributes
    ----------
    likelihood : Likelihood
        It says which function of an image to regress on.
    centre : (C, *space)
        The mean of that function over all examples.
    examples : (M, voxel)
        That function of images with known latents, less the mean.
    scale : float
        s, the median of the squares of the examples.
    weights : (M, K)
        a_m.
    """

    likelihood: Likelihood
    centre: Array
    examples: Array
    scale: float
    weights: Array

    @classmethod
    def of(cls, likelihood: Likelihood, images: Array, latents: Float64Array) -> Regression:
        """Return the regression of latents (M, K) on images (M, C, *space), all in memory."""
        features = likelihood.regressors(images)
        centre = features.mean(axis=0)
        examples = (features - centre).reshape(len(images), -1)
        scale = float(np.median(np.square(examples).sum(axis=1)))
        found = cls(likelihood, centre, examples, max(scale, 1e-30), np.zeros(0))
        weights = ridge_weights(found.kernel(examples), latents)
        return cls(likelihood, centre, examples, found.scale, weights.astype(np.float32))

    def kernel(self, features: Array) -> Array:
        """Return (1 + x . x_m / s)^2 for centred features (N, voxel), (N, M)."""
        return (1 + (features @ self.examples.T) / np.float32(self.scale)) ** 2

    def predict(self, images: Array) -> Float64Array:
        """Return latents (N, K) of images (N, C, *space), in which NaN counts as the mean."""
        features = np.nan_to_num(self.likelihood.regressors(images) - self.centre)
        features = features.reshape(len(images), 1, -1)
        # Products of matrices depend, in their last digits, on how many images go together, and
        # where an image starts must not. A GPU would wait for its host too often.
        parts = features[:, 0][None] if is_on_device(features) else features
        found = np.concatenate([self.kernel(part) @ self.weights for part in parts])
        return cast(Float64Array, found.astype(np.float64))

    def beside(self, other: Array) -> Regression:
        """Return the same where another array is, in memory or on a GPU."""
        xp = array_namespace(other)
        arrays = (self.centre, self.examples, self.weights)
        centre, examples, weights = (xp.asarray(each) for each in arrays)
        return Regression(self.likelihood, centre, examples, self.scale, weights)


@dataclass(frozen=True)
class Guesses:
    """Images that a model thinks likely, to start from when an image is encoded.

    Attributes
    ----------
    latents : (M, K)
        The first is zero, the mean image.
    warped : (M, C, *space)
        a' = a(psi) of these latents.
    regression : Regression
        Of latents on images that are drawn with these and other latents, and with noise.
    """

    latents: Float64Array
    warped: Array
    regression: Regression

    def regressed(self, images: Array) -> Float64Array:
        """Return latents (N, K) of images (N, C, *space), in which NaN counts as the mean."""
        return self.regression.predict(images)
