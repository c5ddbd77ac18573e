"""What a likelihood is: all that depends on how images f come from the warped appearance a'.

A file in this folder defines a subclass of `Likelihood`, and nothing else in the package knows its
name: formulas, defaults, range of values, noise, sampling and words are its attributes. Where
channels are independent, one formula for a voxel of a channel is all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from anamorph.arrays.devices import array_namespace, beside, kernels_for
from anamorph.arrays.typing import Array, Float32Array, Float64Array

#: Module of the loops around the formulas; for arrays on a GPU its twin is imported.
LOOPS = "anamorph.kernels.cpu.likelihood_loops"


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

    name: ClassVar[str]

    #: What images are, in a word or two (for help) and in some more (for reports).
    brief: ClassVar[str]
    description: ClassVar[str]

    #: Weights of "shape", "appearance" and "mean" where nobody gives any: see `settings`.
    default_penalties: ClassVar[Mapping[str, tuple[float, ...]]]

    #: Added to the pushed Hessian of the shape update, to keep it positive.
    shape_loading: ClassVar[float] = 0.0

    #: Least Hessian of a voxel by which Pearson residuals are divided: one voxel that the model
    #: held for impossible would outweigh all others.
    least_curvature: ClassVar[float] = 0.0

    #: Whether there is a noise variance per channel to estimate.
    has_noise: ClassVar[bool] = False

    #: Whether channels are probabilities of classes. Images may then be label maps, probabilities
    #: sum to 1, a voxel is missing in all channels or in none, and each class has a colour.
    holds_classes: ClassVar[bool] = False

    #: Lowest and highest value of an image. Pictures are drawn between them where they are finite.
    value_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    #: The same in words, and what to do about an image that has others.
    range_words: ClassVar[str] = "finite values"
    range_advice: ClassVar[str] = ""

    #: Whether an image that is the same everywhere tells something: an empty field of counts does.
    accepts_constant: ClassVar[bool] = False

    #: Whether integers of a type with a known range (bool, uint8, uint16) stand for 0 to 1.
    #: If not, all integers are what they are.
    scales_integers: ClassVar[bool] = True

    @property
    def channel_nouns(self) -> tuple[str, str]:
        """What a channel and several channels are called."""
        return ("class", "classes") if self.holds_classes else ("channel", "channels")

    def accepts(
        self, lowest: float | np.floating, highest: float | np.floating, slack: float = 0.0
    ) -> bool:
        """Tell whether an image may have values from lowest to highest, give or take some slack."""
        least, most = self.value_range
        return bool(lowest >= least - slack and highest <= most + slack)

    # ---- ln p(f | a')

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

    def link(self, expected: Array) -> Array:
        """Return the appearance a' with a given expectation: here, where they are the same.

        Likelihoods with another expectation override it. Values at the limits of what can be
        expected are as certain as they get.
        """
        return expected

    def regressors(self, images: Array) -> Array:
        """Return what of images (N, C, *space) to regress latents on: here, themselves."""
        return images

    @abstractmethod
    def variance(self, expected: Array, spread: Array, noise_variance: Array) -> Array:
        """Return the variance of each voxel where a' is uncertain, (N, C, *space).

        Parameters
        ----------
        expected : (N, C, *space)
            The mean of E[f | a'].
        spread : (N, C, *space)
            The variance of E[f | a'].
        noise_variance : (C,)
            Ignored where the likelihood has no noise.
        """

    def log_predictive(
        self, images: Array, expected: Array, spread: Array, precision: Array
    ) -> Float64Array:
        """Return ln p(f) where a' is uncertain, voxel by voxel, summed over observed ones, (N,).

        What is binary, or one of several classes, has the probability that is expected. Gaussian
        images override this; for counts the expected rate is taken to be known.

        Parameters
        ----------
        images : (N, C, *space)
        expected, spread : (N, C, *space)
            As for `variance`.
        precision : (C,)
        """
        return self.log_likelihood(self.link(expected), images, precision)

    @abstractmethod
    def draw(
        self, expected: Array, noise_variance: Array, generator: np.random.Generator
    ) -> Float32Array:
        """Return random images f, (N, C, *space), given expected images.

        Parameters
        ----------
        expected : (N, C, *space)
            E[f | a'], in memory.
        noise_variance : (C,)
            Ignored where the likelihood has no noise.
        generator : numpy.random.Generator
        """

    def pearson_residuals(self, appearance: Array, images: Array, precision: Array) -> Array:
        """Return (f - E[f]) / sd[f] of each voxel, (N, C, *space); 0 where it is missing.

        Parameters are those of `log_likelihood`. Residuals of classes are scaled so that the sum
        of their squares over C classes is about C - 1, which is exact for two.
        """
        derivatives, n_channels = self.derivatives(appearance, images, precision), images.shape[1]
        curvature = np.maximum(derivatives.hessian[:, :n_channels], self.least_curvature)
        scale = math.sqrt(1 - 1 / n_channels) if self.holds_classes else 1.0
        is_seen = curvature > 0
        return np.where(
            is_seen, -scale * derivatives.gradient / np.sqrt(np.where(is_seen, curvature, 1)), 0
        ).astype(np.float32)

    # ---- the mean at the start of a fit, and the noise

    def starting_mean(self, count: Array, total: Array) -> Array:
        """Return the mean (C, *space) from which the first Gauss-Newton step departs.

        Parameters
        ----------
        count, total : (C, *space)
            How many images observe each voxel, and the sum of what they observe.
        """
        return np.zeros_like(total)

    @abstractmethod
    def mean_derivatives(
        self, mean: Array, count: Array, total: Array, precision: Array
    ) -> tuple[Array, Array]:
        """Return gradient and Hessian of a mean without warps, from sums over images.

        Parameters
        ----------
        mean : (C, *space)
        count, total : (C, *space)
            As for `starting_mean`.
        precision : (C,)

        Returns
        -------
        gradient : (C, *space)
        hessian : (P, *space)
        """

    def residual_sums(self, appearance: Array, images: Array) -> tuple[Float64Array, Float64Array]:
        """Return the sum of squared residuals and the number of observed voxels, each (N, C)."""
        raise TypeError(f"{self.name} images have no noise variance")

    def noise_precision(
        self, squares: Array, observed: Array, power: Array | float = 0.0
    ) -> Float64Array:
        """Return the most probable precision of the noise, (C,).

        Parameters
        ----------
        squares, observed : (C,)
            Sums of `residual_sums` over images.
        power : (C,), default 0
            Of the mean, in squared intensities.
        """
        raise TypeError(f"{self.name} images have no noise variance")

    def log_likelihood_of_sums(self, squares: Array, observed: Array, precision: Array) -> float:
        """Return ln p(f | a') of all images, from sums (C,) of `residual_sums`."""
        raise TypeError(f"{self.name} images have no noise variance")

    def remove_redundancy(self, appearance: Array) -> Array:
        """Return an appearance (..., C, *space) without directions that change no image."""
        return appearance


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
