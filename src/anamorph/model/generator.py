"""The generative model of an image: latents z -> appearance a and warp psi -> expected image.

a = mu + Wa z,   psi = shoot(Wv z),   a' = a(psi)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.devices import (
    array_namespace,
    beside,
    find_gpu,
    is_on_device,
    kernels_for,
    to_host,
)
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry import shoot, shoot_both
from anamorph.geometry.adjoint import RecordedPath, n_recorded_fields
from anamorph.geometry.shooting import shoot_unfolded
from anamorph.geometry.warps import pull_batch, push_batch, slope_batch
from anamorph.latents import draw_latents
from anamorph.likelihoods.base import Derivatives
from anamorph.model.guesses import Guesses, Regression
from anamorph.model.intensity import Matched, match_intensities
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.model.tangents import StraightPath, Tangents, posterior_axes

Number = TypeVar("Number", float, Float64Array)

_CHAIN_RULES = "anamorph.kernels.cpu.derivatives"
_MOST_GUESSES = 256
# The regression of latents on images learns from so many, or from so many for each coefficient of a
# polynomial of second degree in the latents: more cost a few images longer than they save.
_FEWEST_EXAMPLES, _MOST_EXAMPLES, _EXAMPLES_PER_COEFFICIENT = 256, 1024, 8
_TANGENT_LENGTH = 0.1  # in posterior standard deviations
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


def encoding_bytes(settings: Settings) -> int:
    """Return how many bytes it takes to encode one image: what to tell a `BatchPlanner`.

    Besides `working_bytes`, what each latent does to the warp, twice: for all images and for those
    that are not finished. And either the steps of a geodesic that adjoint shooting goes back along,
    or what each latent does to the warped image.
    """
    s = settings
    tangents = 2 * s.layout.n_shape * s.n_dims
    recorded = n_recorded_fields(s.n_steps) * s.n_dims
    effects = s.layout.n_latents * s.n_channels
    return working_bytes(s) + 4 * math.prod(s.space) * (tangents + max(recorded, effects))


@dataclass(frozen=True)
class Generator:
    """What a model says of images (N, C, *space) with given latents (N, K).

    Attributes
    ----------
    settings : Settings
    parameters : Parameters
        What is asked for is computed where they are, in memory or on a GPU.
    residual : (N, d, *space), optional
        r, the residual velocity of each of the images that methods are given (see `residuals`), in
        the same place; none by default.
    unresolved : (N, C), optional
        What averaging over coarse voxels has lost of the squares of each of these images; by
        default they are whole. It counts as residual, which no appearance explains on this grid.
    tangents : Tangents, optional
        Warps of each of these images as a linear function of its latents, in place of geodesics.
    """

    settings: Settings
    parameters: Parameters
    residual: Array | None = field(default=None, kw_only=True)
    unresolved: Float64Array | None = field(default=None, kw_only=True)
    tangents: Tangents | None = field(default=None, kw_only=True)

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
        """Guesses drawn from the prior of the latents, always the same: as many as are cheap.

        Without warps the mean is the only one, since there is but one optimum to be found.
        """
        kept = max(_MOST_GUESS_BYTES // self.parameters.mean.nbytes, 1)
        n_coefficients = math.comb(len(self.prior_precision) + 2, 2)
        useful = max(_EXAMPLES_PER_COEFFICIENT * n_coefficients, _FEWEST_EXAMPLES)
        number = min(kept, useful, _MOST_EXAMPLES) if self.settings.layout.n_shape else 1
        draws = np.random.default_rng(0)
        drawn = draw_latents(self.prior_precision, number, draws)
        drawn[0] = 0
        latents = self.own(drawn)
        warped = np.empty_like(self.parameters.mean, shape=(number, *self.parameters.mean.shape))
        room = _GUESSING_BYTES_ON_GPU if is_on_device(latents) else _GUESSING_BYTES
        for some in split_evenly(slice(0, number), room // working_bytes(self.settings)):
            displacement = self.displacement(latents[some])
            warped[some] = self.warp(self.appearance(latents[some]), displacement)
        likelihood = self.settings.likelihood
        noise_variance = 1 / self.parameters.noise_precision
        images = likelihood.draw(to_host(likelihood.expectation(warped)), noise_variance, draws)
        regression = Regression.of(likelihood, images, drawn).beside(self.parameters.mean)
        few = slice(0, _MOST_GUESSES)
        return Guesses(latents[few], warped[few].copy(), regression)

    def appearance(self, latents: Float64Array) -> Array:
        """Return a = mu + Wa z, (N, C, *space), of latents (N, K)."""
        weights = latents[:, self.settings.layout.appearance]
        return self.parameters.mean + _combine(weights, self.parameters.appearance_basis)

    @cached_property
    def has_warps(self) -> bool:
        """Whether anything moves: when a fit begins, the shape basis is zero."""
        is_bent = self.residual is not None
        return self.settings.layout.n_shape > 0 and (
            is_bent or bool(self.parameters.shape_basis.any())
        )

    def displacement(self, latents: Float64Array) -> Array | None:
        """Return the displacement of psi = shoot(Wv z), (N, d, *space); None if nothing moves."""
        if self.settings.layout.n_shape == 0:
            return None
        if self.tangents is not None:
            return self.tangents.path(latents[:, self.settings.layout.shape]).displacement
        s = self.settings
        return shoot(self.velocity(latents), s.shape_penalty, s.voxel_size, s.n_steps)

    def unfolded_displacement(self, latents: Float64Array) -> Array | None:
        """Return the same for drawing: in as many steps of shooting as warps need not to fold.

        Fits and encoding differentiate every step, and take those that were asked for.
        """
        if self.settings.layout.n_shape == 0:
            return None
        s = self.settings
        return shoot_unfolded(self.velocity(latents), s.shape_penalty, s.voxel_size, s.n_steps)

    def inverse_displacement(self, latents: Float64Array) -> Array | None:
        """Return the displacement of psi^-1, (N, d, *space); None if nothing moves."""
        if self.settings.layout.n_shape == 0:
            return None
        s = self.settings
        return shoot_both(self.velocity(latents), s.shape_penalty, s.voxel_size, s.n_steps)[1]

    def record(self, latents: Float64Array) -> RecordedPath | StraightPath | None:
        """Return the geodesics of latents (N, K), which can be differentiated; None without."""
        if self.settings.layout.n_shape == 0:
            return None
        if self.tangents is not None:
            return self.tangents.path(latents[:, self.settings.layout.shape])
        s = self.settings
        return RecordedPath(self.velocity(latents), s.shape_penalty, s.voxel_size, s.n_steps)

    def velocity(self, latents: Float64Array) -> Array:
        """Return v = Wv z, (N, d, *space), or Wv z + r where images have residual warps."""
        modes = _combine(latents[:, self.settings.layout.shape], self.parameters.shape_basis)
        return modes if self.residual is None else modes + self.residual

    # ---- where images look: `model.posing` overrides these for images that have a pose

    def bent(self, residual: Array | None) -> Generator:
        """Return what the model says of images with residual velocities (N, d, *space), if any."""
        return self if residual is None else replace(self, residual=self.own(residual))

    def linearised(self, tangents: Tangents) -> Generator:
        """Return what the model would say of images if their warps were linear in the latents."""
        return replace(self, tangents=tangents)

    def only(self, which: IntArray) -> Generator:
        """Return what the model says of some of the images, whose numbers increase."""
        if self.residual is None and self.unresolved is None and self.tangents is None:
            return self
        residual = None if self.residual is None else self.residual[which]
        unresolved = None if self.unresolved is None else self.unresolved[which]
        tangents = None if self.tangents is None else self.tangents.only(which)
        return replace(self, residual=residual, unresolved=unresolved, tangents=tangents)

    def known_latents(self) -> Float64Array | None:
        """Return latents (N, K) to start from, where they are known of these images."""
        return None

    def placed(self, displacement: Array | None) -> Array | None:
        """Return how far from voxels of an image its appearance is, (N, d, *space); None: there."""
        return displacement

    def placed_inverse(self, displacement: Array | None) -> Array | None:
        """Return the same the other way, given the displacement of psi^-1."""
        return displacement

    def unplaced(self, covector: Array) -> Array:
        """Return the derivative with respect to the warp, given that of where images look."""
        return covector

    def observed(self, images: Array, displacement: Array | None) -> Array:
        """Return images with NaN wherever something else than the appearance explains them."""
        return images

    def unposed(self, images: Array) -> Array:
        """Return images (N, C, *space) as they would be without poses."""
        return images

    def warp(self, appearance: Array, displacement: Array | None) -> Array:
        """Return a' = a(psi) of appearances (N, C, *space) and displacements (N, d, *space)."""
        total = self.placed(displacement)
        return appearance if total is None else pull_batch(appearance, total)

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
        warped = self.warp(appearance, displacement)
        images, density = self.comparable(images, warped)
        values = self.settings.likelihood.log_likelihood(
            warped, images, self.parameters.noise_precision
        )
        return self.settings.decimation * (values + density)

    def derivatives(
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Derivatives:
        """Return ln p(f | z), and gradient and Hessian of -ln p with respect to a, pushed.

        Parameters are those of `log_likelihood`, and what is returned is weighted as there.
        """
        return self.pushed(self.warped_derivatives(appearance, displacement, images), displacement)

    def warped_derivatives(
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Derivatives:
        """Return the same with respect to the warped appearance a', where images are."""
        expected = self.warp(appearance, displacement)
        images, density = self.comparable(images, expected)
        warped = self.settings.likelihood.derivatives(
            expected, images, self.parameters.noise_precision
        )
        values = warped.log_likelihood + density
        warped = Derivatives(values, warped.gradient, warped.hessian)
        factor = self.settings.decimation
        if factor == 1:
            return warped
        return Derivatives(
            factor * warped.log_likelihood,
            np.float32(factor) * warped.gradient,
            np.float32(factor) * warped.hessian,
        )

    def matched(self, images: Array, expected: Array) -> Matched:
        """Return images with the gain and offset that fit to expected ones (see `intensity`)."""
        precision = self.parameters.noise_precision
        kind = self.settings.intensity
        return match_intensities(images, expected, precision, kind, self.unresolved)

    def in_own_intensities(
        self, images: Array, expected: Array, displacement: Array | None
    ) -> tuple[Array, Array]:
        """Return expected images in the intensities of the images they stand for.

        Parameters
        ----------
        images : (N, C, *space)
            f, NaN where missing.
        expected : (N, C, *space)
            In the intensities of the model.
        displacement : (N, d, *space) or None
            That of psi.

        Returns
        -------
        expected : (N, C, *space)
        gain : (N, C, *space)
            By which deviations of the expected images have to be divided.
        """
        matched = self.matched(self.observed(images, displacement), expected)
        return matched.undone(expected), matched.gain

    def comparable(self, images: Array, expected: Array) -> tuple[Array, Float64Array | float]:
        """Return images that can be compared with expected ones, and what ln p(f | a') gains.

        That is, matched ones if each image has a gain of its own, and else the images and, unless
        averaging has lost something of them, 0.
        """
        if not self.settings.matches_intensities:
            if self.unresolved is None:
                return images, 0.0
            precision = beside(self.unresolved, self.parameters.noise_precision)
            return images, -0.5 * (self.unresolved @ precision)
        matched = self.matched(images, expected)
        return matched.images, matched.log_density

    def misfit(
        self, images: Array, appearance: Array, displacement: Array | None
    ) -> tuple[Float64Array, Float64Array]:
        """Return squared residuals and numbers of voxels observed, (N, C) each: for the noise."""
        warped, images = self.warp(appearance, displacement), self.observed(images, displacement)
        unresolved = self.unresolved
        if self.settings.matches_intensities:
            matched = self.matched(images, warped)
            images, unresolved = matched.images, matched.unresolved
        squares, observed = self.settings.likelihood.residual_sums(warped, images)
        return squares if unresolved is None else squares + unresolved, observed

    def pushed(self, warped: Derivatives, displacement: Array | None) -> Derivatives:
        """Return derivatives with respect to a, given those with respect to a'."""
        total = self.placed(displacement)
        if total is None:
            return warped
        n_channels = self.settings.n_channels
        stacked = np.concatenate([warped.gradient, warped.hessian], axis=1)
        pushed = push_batch(stacked, total)
        return Derivatives(warped.log_likelihood, pushed[:, :n_channels], pushed[:, n_channels:])

    def shape_derivatives(self, appearance: Array, derivatives: Derivatives) -> tuple[Array, Array]:
        """Return gradient (N, d, *space) and packed Hessian with respect to the velocity."""
        loading = self.settings.likelihood.shape_loading
        return self.motion_derivatives(self.image_gradients(appearance), derivatives, loading)

    def exact_shape_derivatives(
        self, path: RecordedPath, appearance: Array, images: Array
    ) -> Derivatives:
        """Return ln p(f | z), and derivatives of -ln p with respect to the velocity.

        The gradient is exact, by adjoint shooting; the Hessian is that of `shape_derivatives`.

        Parameters
        ----------
        path : RecordedPath
            Of the latents.
        appearance : (N, C, *space)
            a, not warped yet.
        images : (N, C, *space)
            f, NaN where missing.
        """
        warped = self.warped_derivatives(appearance, path.displacement, images)
        force = self.force(appearance, path.displacement, warped.gradient)
        pushed = self.pushed(warped, path.displacement)
        _, hessian = self.shape_derivatives(appearance, pushed)
        return Derivatives(warped.log_likelihood, path.differentiate(force), hessian)

    def motion_derivatives(
        self, gradients: Array, derivatives: Derivatives, loading: float = 0.0
    ) -> tuple[Array, Array]:
        """Return -D'g, (N, d, *space), and D'HD, packed, given D, (N, C, d, voxel)."""
        n_images, space = len(gradients), self.settings.space
        xp = array_namespace(gradients)
        gradient = xp.empty((n_images, self.settings.n_dims, *space), gradients.dtype)
        hessian = xp.empty((n_images, self.settings.n_shape_hessian, *space), gradients.dtype)
        kernels_for(gradients, _CHAIN_RULES).shape_derivatives(
            gradients,
            _flat(derivatives.gradient),
            _flat(derivatives.hessian),
            loading,
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
            self.image_gradients(appearance),
            _flat(derivatives.gradient),
            _flat(derivatives.hessian),
            gradient,
            hessian,
        )
        return gradient, hessian

    def exact_gradient(
        self,
        path: RecordedPath | StraightPath,
        appearance: Array,
        gradient: Array,
        which: IntArray,
    ) -> Float64Array:
        """Return the exact gradient of -ln p(f | z) with respect to z, (n, K), of some images.

        Parameters
        ----------
        path : RecordedPath or StraightPath
            Of the latents: adjoint shooting takes the gradient back to their beginnings.
        appearance, gradient : (N, C, *space)
            a, and the derivative of -ln p(f | z) with respect to a'.
        which : (n,) integers
            The images meant.
        """
        layout, parameters = self.settings.layout, self.parameters
        here, some, slopes = self.only(which), appearance[which], gradient[which]
        displacement = path.displacement[which]
        force = here.force(some, displacement, slopes)
        found: Float64Array = array_namespace(some).zeros((len(which), layout.n_latents))
        if isinstance(path, RecordedPath):
            adjoint = path.differentiate(force, which)
            found[:, layout.shape] += _rows(adjoint) @ _rows(parameters.shape_basis).T
        else:
            found[:, layout.shape] += cast(Tangents, here.tangents).slopes(force)
        if layout.n_appearance:
            pushed = push_batch(slopes, cast(Array, here.placed(displacement)))
            found[:, layout.appearance] += _rows(pushed) @ _rows(parameters.appearance_basis).T
        return found

    def force(self, appearance: Array, displacement: Array, gradient: Array) -> Array:
        """Return the derivative of -ln p(f | z) with respect to the displacement of psi.

        Parameters
        ----------
        appearance : (N, C, *space)
            a.
        displacement : (N, d, *space)
            That of psi.
        gradient : (N, C, *space)
            The derivative of -ln p(f | z) with respect to a'.
        """
        warp = cast(Array, self.placed(displacement))
        return self.unplaced(slope_batch(appearance, gradient, warp))

    def find_tangents(self, latents: Float64Array, hessian: Float64Array) -> Tangents:
        """Return what latents (N, K) do to the warps of images, found by shooting nearby.

        That takes one shooting there, and one for each latent of shape.

        Parameters
        ----------
        latents : (N, K)
        hessian : (N, K, K)
            An approximate one, with the prior: steps go along the axes of its posterior.
        """
        shape = self.settings.layout.shape
        axes, inverse = posterior_axes(hessian[:, shape, shape])
        found = Tangents.empty(latents[:, shape], cast(Array, self.displacement(latents)))
        for m in range(axes.shape[1]):
            moved = latents.copy()
            moved[:, shape] += _TANGENT_LENGTH * axes[:, :, m]
            found.effects[:, m] = cast(Array, self.displacement(moved)) - found.displacement
        found.turn(inverse / _TANGENT_LENGTH)
        return found

    def tangent_derivatives(
        self, latents: Float64Array, hessian: Float64Array, images: Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return J'g, (N, K), and J'HJ, (N, K, K), with J what latents do to the warped image.

        Columns of J are differences between the warped images of z and of latents a small step
        away, along the axes of the posterior that an approximate Hessian gives: K shootings, unless
        warps are linear. Other than the approximate effects of `latent_derivatives`, they are exact
        up to that step.

        Parameters
        ----------
        latents : (N, K)
        hessian : (N, K, K)
            The approximate one, with the prior.
        images : (N, C, *space)
        """
        axes, inverse = posterior_axes(hessian)
        appearance, displacement = self.appearance(latents), self.displacement(latents)
        here = self.warp(appearance, displacement)
        effects = np.empty_like(here, shape=(*latents.shape, *here.shape[1:]))  # J
        for k in range(latents.shape[1]):
            moved = latents + _TANGENT_LENGTH * axes[:, :, k]
            there = self.warp(self.appearance(moved), self.displacement(moved))
            effects[:, k] = (there - here) / np.float32(_TANGENT_LENGTH)
        slopes, products = self._own_derivatives(
            effects, self.warped_derivatives(appearance, displacement, images)
        )
        back = inverse.swapaxes(1, 2)
        return (back @ slopes[..., None])[..., 0], back @ products @ inverse

    def _own_derivatives(
        self, effects: Array, warped: Derivatives
    ) -> tuple[Float64Array, Float64Array]:
        """Return J'g and J'HJ, given J, (N, K, C, *space): each image has a basis of its own."""
        n_images, n_latents, n_channels, *space = effects.shape
        xp, n_dims, n_voxels = array_namespace(effects), len(space), math.prod(space)
        no_motion = xp.zeros((0, n_dims, n_voxels), effects.dtype)
        no_slopes = xp.zeros((1, n_channels, n_dims, n_voxels), effects.dtype)
        gradient: Float64Array = xp.empty((n_images, n_latents))
        products: Float64Array = xp.empty((n_images, n_latents, n_latents))
        g, h = _flat(warped.gradient), _flat(warped.hessian)
        multiply = kernels_for(effects, _CHAIN_RULES).latent_derivatives
        for n in range(n_images):
            one = slice(n, n + 1)
            multiply(
                *(_flat(effects[n]), no_motion, n_latents, no_slopes),
                *(g[one], h[one], gradient[one], products[one]),
            )
        return gradient, products

    def expected_images(
        self, latents: Float64Array, *, warped: bool = True, coloured: bool = True
    ) -> Array:
        """Return E[f | z], (N, C, *space), perhaps without its warp or its change of appearance."""
        appearance = self.appearance(latents if coloured else np.zeros_like(latents))
        displacement = self.unfolded_displacement(latents) if warped else None
        return self.settings.likelihood.expectation(self.warp(appearance, displacement))

    def image_gradients(self, appearance: Array) -> Array:
        """Return central differences of appearances (N, C, *space), (N, C, d, voxel)."""
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


def _rows(fields: Array) -> Array:
    return fields.reshape(len(fields), math.prod(fields.shape[1:]))


def _flat(images: Array) -> Array:
    contiguous: Array = array_namespace(images).ascontiguousarray(images)
    return contiguous.reshape(*images.shape[:2], math.prod(images.shape[2:]))


def slack(value: Number) -> Number:
    """Return by how much a quantity may fall for no other reason than rounding."""
    return _ROUNDING * abs(value)


def where_held(values: Float64Array, displacement: Array | None) -> Float64Array:
    """Return values of images (N,), minus infinity where shooting has lost what it carries.

    Latents of hundreds of standard deviations take voxels farther than the whole box, and soon
    1e30 times as far. What is found there depends on the last digit of a velocity, and may look
    better than the mean image: it must be no place to be.

    Parameters
    ----------
    values : (N,)
    displacement : (N, d, *space) or None
        That of psi; None if nothing moves.
    """
    if displacement is None:
        return values
    farthest = abs(displacement).max(axis=tuple(range(1, displacement.ndim)))
    held: Float64Array = np.where(farthest <= max(displacement.shape[2:]), values, -np.inf)
    return held


def is_no_worse(after: Float64Array, before: Float64Array) -> BoolArray:
    """Tell where values are finite, and below those of before by no more than rounding."""
    result: BoolArray = np.isfinite(after) & (after >= before - slack(after))
    return result
