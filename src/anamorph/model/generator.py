"""The generative model of an image: latents z -> appearance a and warp psi -> expected image.

a = mu + Wa z,   psi = shoot(Wv z),   a' = a(psi)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.devices import array_namespace, beside, find_gpu, is_on_device, kernels_for
from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry import shoot
from anamorph.geometry.warps import pull_batch, push_batch
from anamorph.latents import draw_latents
from anamorph.likelihoods.base import Derivatives
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings

Number = TypeVar("Number", float, Float64Array)

_CHAIN_RULES = "anamorph.kernels.cpu.derivatives"
_MOST_GUESSES = 256
_MOST_GUESS_BYTES = 2**26
_GUESSING_BYTES, _GUESSING_BYTES_ON_GPU = 2**26, 2**32  # for guesses that are made at a time
# Fields are float32: a log-likelihood is known only up to this share of itself.
_ROUNDING = 2e-7


def working_bytes(settings: Settings) -> int:
    """Return how many bytes the work on one image takes: what to tell a `BatchPlanner`.

    Images, appearances, warps and steps of shooting; gradients and Hessians as they are computed,
    pushed and carried on to shape by the chain rule.
    """
    s = settings
    numbers_per_voxel = (
        4 * s.n_channels + 3 * s.n_hessian + s.n_channels * s.n_dims
        + 6 * s.n_dims + s.n_shape_hessian
    )  # fmt: skip
    return 4 * math.prod(s.space) * numbers_per_voxel


@dataclass(frozen=True)
class Guesses:
    """Images that a model thinks likely, to start from when an image is encoded.

    Attributes
    ----------
    latents : (M, K)
        The first is zero, the mean image.
    warped : (M, C, *space)
        a' = a(psi) of these latents.
    """

    latents: Float64Array
    warped: Array


@dataclass(frozen=True)
class Generator:
    """What a model says of images (N, C, *space) with given latents (N, K).

    Attributes
    ----------
    settings : Settings
    parameters : Parameters
        What is asked for is computed where they are, in memory or on a GPU.
    """

    settings: Settings
    parameters: Parameters

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed when it is needed: pickles stay small."""
        return {"settings": self.settings, "parameters": self.parameters}

    @cached_property
    def on_gpu(self) -> Generator:
        """The same with its parameters on the GPU: sent there once."""
        return Generator(self.settings, self.parameters.beside(find_gpu()))

    def own(self, values: Array) -> Any:
        """Return images or latents where the parameters are, in memory or on a GPU."""
        return beside(self.parameters.mean, values)

    @cached_property
    def prior_precision(self) -> Float64Array:
        """P = lambda_1 A + lambda_2 C."""
        return self.parameters.prior_precision(self.settings)

    def log_prior(self, latents: Float64Array) -> Float64Array:
        """Return -z'Pz/2 per image, (N,), of latents (N, K)."""
        values: Float64Array = -0.5 * ((latents @ self.prior_of(latents)) * latents).sum(axis=1)
        return values

    def prior_of(self, latents: Float64Array) -> Float64Array:
        """Return P where the latents are: on the GPU if they are there."""
        return self._prior_on_device if is_on_device(latents) else self.prior_precision

    @cached_property
    def _prior_on_device(self) -> Float64Array:
        prior: Float64Array = self.own(self.prior_precision)
        return prior

    @cached_property
    def guesses(self) -> Guesses:
        """Guesses drawn from z ~ N(0, A^-1), always the same: as many as are cheap to keep.

        Without warps the mean is the only one, since there is but one optimum to be found.
        """
        kept = _MOST_GUESS_BYTES // self.parameters.mean.nbytes
        number = min(max(kept, 1), _MOST_GUESSES) if self.settings.layout.n_shape else 1
        draws = np.random.default_rng(0)
        drawn = draw_latents(self.parameters.latent_precision, number, draws)
        drawn[0] = 0
        latents = self.own(drawn)
        warped = np.empty_like(self.parameters.mean, shape=(number, *self.parameters.mean.shape))
        room = _GUESSING_BYTES_ON_GPU if is_on_device(latents) else _GUESSING_BYTES
        for some in split_evenly(slice(0, number), room // working_bytes(self.settings)):
            displacement = self.displacement(latents[some])
            warped[some] = self.warp(self.appearance(latents[some]), displacement)
        return Guesses(latents, warped)

    def appearance(self, latents: Float64Array) -> Array:
        """Return a = mu + Wa z, (N, C, *space), of latents (N, K)."""
        weights = latents[:, self.settings.layout.appearance]
        return self.parameters.mean + _combine(weights, self.parameters.appearance_basis)

    def displacement(self, latents: Float64Array) -> Array | None:
        """Return the displacement of psi = shoot(Wv z), (N, d, *space); None if nothing moves."""
        if self.settings.layout.n_shape == 0:
            return None
        weights = latents[:, self.settings.layout.shape]
        velocity = _combine(weights, self.parameters.shape_basis)
        return shoot(
            velocity, self.settings.shape_penalty, self.settings.voxel_size, self.settings.n_steps
        )

    def warp(self, appearance: Array, displacement: Array | None) -> Array:
        """Return a' = a(psi) of appearances (N, C, *space) and displacements (N, d, *space)."""
        return appearance if displacement is None else pull_batch(appearance, displacement)

    def log_likelihood(
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Float64Array:
        """Return ln p(f | z) per image, (N,), times the decimation.

        Parameters
        ----------
        appearance : (N, C, *space)
            a, not warped yet.
        displacement : (N, d, *space) or None
            That of psi; None if nothing moves.
        images : (N, C, *space)
            f, NaN where missing.
        """
        values = self.settings.likelihood.log_likelihood(
            self.warp(appearance, displacement), images, self.parameters.noise_precision
        )
        return self.settings.decimation * values

    def derivatives(
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Derivatives:
        """Return ln p(f | z), and gradient and Hessian of -ln p with respect to a, pushed.

        Parameters are those of `log_likelihood`, and what is returned is weighted as there.
        """
        warped = self.settings.likelihood.derivatives(
            self.warp(appearance, displacement), images, self.parameters.noise_precision
        )
        factor = self.settings.decimation
        stacked = np.concatenate([warped.gradient, warped.hessian], axis=1)
        if factor != 1:
            stacked *= np.float32(factor)
        pushed = stacked if displacement is None else push_batch(stacked, displacement)
        n_channels = appearance.shape[1]
        return Derivatives(
            factor * warped.log_likelihood, pushed[:, :n_channels], pushed[:, n_channels:]
        )

    def shape_derivatives(self, appearance: Array, derivatives: Derivatives) -> tuple[Array, Array]:
        """Return gradient (N, d, *space) and packed Hessian with respect to the velocity."""
        gradients = self._image_gradients(appearance)
        n_images, space = len(appearance), self.settings.space
        xp = array_namespace(appearance)
        gradient = xp.empty((n_images, self.settings.n_dims, *space), appearance.dtype)
        hessian = xp.empty((n_images, self.settings.n_shape_hessian, *space), appearance.dtype)
        kernels_for(appearance, _CHAIN_RULES).shape_derivatives(
            gradients,
            _flat(derivatives.gradient),
            _flat(derivatives.hessian),
            self.settings.likelihood.shape_loading,
            _flat(gradient),
            _flat(hessian),
        )
        return gradient, hessian

    def latent_derivatives(
        self, appearance: Array, derivatives: Derivatives
    ) -> tuple[Float64Array, Float64Array]:
        """Return B'g, (N, K), and B'HB, (N, K, K): those of -ln p(f | z) with respect to z."""
        n_images, n_latents = len(appearance), self.settings.layout.n_latents
        xp = array_namespace(appearance)
        gradient = xp.empty((n_images, n_latents))
        hessian = xp.empty((n_images, n_latents, n_latents))
        kernels_for(appearance, _CHAIN_RULES).latent_derivatives(
            _flat(self.parameters.appearance_basis),
            _flat(self.parameters.shape_basis),
            self.settings.layout.first_shape,
            self._image_gradients(appearance),
            _flat(derivatives.gradient),
            _flat(derivatives.hessian),
            gradient,
            hessian,
        )
        return gradient, hessian

    def expected_images(
        self, latents: Float64Array, *, warped: bool = True, coloured: bool = True
    ) -> Array:
        """Return E[f | z], (N, C, *space), perhaps without its warp or its change of appearance."""
        appearance = self.appearance(latents if coloured else np.zeros_like(latents))
        displacement = self.displacement(latents) if warped else None
        return self.settings.likelihood.expectation(self.warp(appearance, displacement))

    def _image_gradients(self, appearance: Array) -> Array:
        flat = _flat(appearance)
        gradients = np.empty_like(
            flat, shape=(*flat.shape[:2], self.settings.n_dims, flat.shape[2])
        )
        kernels_for(flat, _CHAIN_RULES).image_gradients(flat, self.settings.space, gradients)
        return gradients


def _combine(weights: Float64Array, basis: Array) -> Array:
    flat = basis.reshape(len(basis), math.prod(basis.shape[1:]))
    product = weights.astype(basis.dtype) @ flat
    return product.reshape(len(weights), *basis.shape[1:])


def _flat(images: Array) -> Array:
    contiguous: Array = array_namespace(images).ascontiguousarray(images)
    return contiguous.reshape(*images.shape[:2], math.prod(images.shape[2:]))


def slack(value: Number) -> Number:
    """Return by how much a quantity may fall for no other reason than rounding."""
    return _ROUNDING * abs(value)
