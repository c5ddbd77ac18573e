"""How sure a model may be of new images: each is predicted as if it had not been learnt from.

A model knows the images that it was learnt from too well: the more latents there are, the smaller
are the residuals that they leave, and the surer it is of what it sees. How sure it may be of a
*new* image is found by hiding a box of every image, and predicting the box from the rest under
bases that have not seen the image, for several weights w of the likelihood.

The bases that have not seen an image follow from its influence. Given its latents z and residual
r = f - E[f | z], and M = (ZZ' + Q)^-1 with Q for the penalties, least squares without it have

    B_ = B - r a',   mu_ = mu - r / (N (1 - h)),   a = M z / (1 - h),   h = z'Mz + 1/N,

where B is the derivative of the image with respect to z, and h the leverage. With the Hessian H of
the likelihood where the image is seen, G = B'HB, b = B'Hr and rho = r'Hr, the latents that the
rest of the image has under these bases are

    G_ = G - b a' - a b' + rho a a',   c = G z + k b - a (b'z + k rho),   k = 1 + 1 / (N (1 - h)),
    z_(w) = (w G_ + A)^-1 w c.

The box is predicted by E[f | z_(w)] - r (a'z_(w) + k - 1). For a model without warps and Gaussian
noise all of this is exact, but for penalties and the influence of the image on A.

Residuals have a say as well: where noise is smooth and the model right, the weight is the share of
voxels that are independent. Predictions decide whether to believe it, and
only where the likelihood has a variance that is estimated: with tissue maps, whose residuals are
not those of classes that are drawn, the two agreed and new images were predicted 3 % worse.

Residuals of neighbouring voxels are alike where noise is smooth. With rho(h) their correlation at
a lag of h voxels, an image of V voxels tells as much of a variance as V / sum_h rho(h)^2 voxels
with independent residuals would. An estimate of rho(h) from one image is so noisy that its squares,
summed over all lags, count noise. So squares are products of the estimates from two *different*
images, averaged over all pairs of images: (S_1^2 - S_2) / (N (N - 1)), where S_1 and S_2 are sums
over images of rho_n(h) and of its square. Two sums per lag thus are all that leaves a site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, Float64Array
from anamorph.images.hidden import Boxes
from anamorph.latents import starting_latents
from anamorph.model.generator import Generator

#: Weights of the likelihood that are tried.
WEIGHTS = tuple(2.0**-power for power in range(12))

_HIDDEN_SHARE = 0.29
_SEED_OF_BOXES = 29
# The influence of an image that latents explain on their own is not known: 1 - h would be 0.
_MOST_LEVERAGE = 0.9
# Weights predict equally well if they forgo no more than the first share of what the best one
# gains, and the second of its error: of these, the least sure is taken.
_FORGONE, _ADDED = 0.05, 0.015
_AGREED = 0.005  # share of the least error within which the weight that residuals say is taken
_ROUNDING = 1e-6

_LARGEST_LAG = 12
_LEAST_PAIRS = 0.1  # of an image's voxels, at a lag, for its correlation there to be known
_TRANSFORM_BYTES = 2**26  # for images that are transformed at a time


@dataclass(frozen=True)
class Cohesion:
    """What the images have in common that leverage depends on.

    Attributes
    ----------
    inverse_scatter : (K, K)
        M = (ZZ' + Q)^-1, where Q is what the penalties of the bases count for.
    n_images : int
        N, at all sites.
    """

    inverse_scatter: Float64Array
    n_images: int


def draw_boxes(identities: Sequence[int | str], space: tuple[int, ...]) -> Boxes:
    """Return a box of each image, which depends on nothing but its identity."""
    sides = Boxes.draw(1, space, _HIDDEN_SHARE, _SEED_OF_BOXES).sides
    places = np.subtract(space, sides) + 1
    uniform = ndtr(starting_latents(_SEED_OF_BOXES, identities, len(space)))
    corners = np.minimum(uniform * places, places - 1).astype(np.intp)
    return Boxes(space, sides, corners)


def errors_without(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    displacement: Array | None,
    is_hidden: Array,
    cohesion: Cohesion,
) -> tuple[Float64Array, ...]:
    """Return how well images are predicted without having been learnt from, in sums over them.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents : (N, K)
        Those that were learnt.
    displacement : (N, d, *space) or None
        Of the warps of these latents.
    is_hidden : (N, *space) bool
        The box of each image.
    cohesion : Cohesion

    Returns
    -------
    errors : (len(WEIGHTS),)
        Squared errors in the boxes, over the noise variance, for each weight; infinite where a
        prediction is not finite.
    squares : (C,)
        Squared residuals of whole images. For images whose influence is not known, and where it
        would be less, of what the mean alone leaves of them.
    observed : (C,)
        Number of voxels in them.
    correlation, squared_correlation : (*lags)
        Of Pearson residuals, from `correlation_sums`.
    """
    xp, space = array_namespace(images), tuple(range(2, images.ndim))
    leverage = _Leverage.of(latents, cohesion)
    likelihood = generator.settings.likelihood
    warped = generator.warp(generator.appearance(latents), displacement)
    images, _ = generator.comparable(images, likelihood.expectation(warped))
    is_seen = ~np.isnan(images)
    residual = np.where(is_seen, images - likelihood.expectation(warped), np.float32(0))
    correlations = correlation_sums(
        likelihood.pearson_residuals(warped, images, generator.parameters.noise_precision), is_seen
    )
    matrix, vector = _normal_equations(
        generator, images, latents, displacement, is_hidden, leverage
    )
    prior = beside(latents, generator.parameters.latent_precision)
    precision = beside(images, generator.parameters.noise_precision).reshape(-1, *(1,) * len(space))
    in_box = is_hidden[:, None] & is_seen
    errors = xp.empty(len(WEIGHTS))

    def wrong(found: Float64Array, where: Array) -> Array:
        """Return by how much latents are wrong of images that bases have not seen."""
        shift = (leverage.influence * found).sum(axis=1) + leverage.stretch - 1
        error = images - generator.expected_images(found) + residual * _as_images(shift, residual)
        return np.where(where, error, 0).astype(np.float64)

    for n, weight in enumerate(WEIGHTS):
        found = np.linalg.solve(weight * matrix + prior, weight * vector[..., None])[..., 0]
        error = (wrong(found, in_box) ** 2 * precision).sum()
        # Latents far outside of what was seen can have no image at all: nothing is more wrong.
        errors[n] = np.where(np.isnan(error), np.inf, error)
    honest = residual.astype(np.float64) * _as_images(1 / (1 - leverage.value), residual)
    # Modes can be of no use for an image, but not of less: its latents may be 0.
    without_modes = wrong(xp.zeros_like(latents), is_seen)
    with_them, squares = ((error**2).sum(axis=space) for error in (honest, without_modes))
    is_known = (leverage.value < _MOST_LEVERAGE)[:, None]
    squares = np.where(is_known, np.fmin(with_them, squares), squares)
    return errors, squares.sum(axis=0), is_seen.sum(axis=(0, *space)), *correlations


@dataclass(frozen=True)
class _Leverage:
    """Leverage h (N,), influence a (N, K) and stretch k (N,) of images."""

    value: Float64Array
    influence: Float64Array
    stretch: Float64Array

    @classmethod
    def of(cls, latents: Float64Array, cohesion: Cohesion) -> _Leverage:
        share = latents @ beside(latents, cohesion.inverse_scatter)
        value = (share * latents).sum(axis=1) + 1 / cohesion.n_images
        value = np.minimum(value, _MOST_LEVERAGE)
        rest = 1 - value
        return cls(value, share / rest[:, None], 1 + 1 / (cohesion.n_images * rest))


def _normal_equations(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    displacement: Array | None,
    is_hidden: Array,
    leverage: _Leverage,
) -> tuple[Float64Array, Float64Array]:
    """Return G_ (N, K, K) and c (N, K) of what is seen of images outside their boxes."""
    rest = np.where(is_hidden[:, None], np.float32(np.nan), images)
    appearance = generator.appearance(latents)
    derivatives = generator.derivatives(appearance, displacement, rest)
    slope, matrix = generator.latent_derivatives(appearance, derivatives)  # slope = -B'Hr
    residual = generator.settings.likelihood.pearson_residuals(
        generator.warp(appearance, displacement), rest, generator.parameters.noise_precision
    )
    squares = np.square(residual.astype(np.float64)).sum(axis=tuple(range(1, residual.ndim)))
    squares = generator.settings.decimation * squares
    a, k, b = leverage.influence, leverage.stretch, -slope
    crossed = b[:, :, None] * a[:, None]
    turned = matrix - crossed - crossed.swapaxes(1, 2)
    turned += squares[:, None, None] * a[:, :, None] * a[:, None]
    vector = (matrix @ latents[..., None])[..., 0] + k[:, None] * b
    vector -= a * ((b * latents).sum(axis=1) + k * squares)[:, None]
    return turned, vector


def _as_images(numbers: Float64Array, images: Array) -> Array:
    """Return one number per image, (N,), in a shape that multiplies images."""
    return numbers.astype(images.dtype).reshape(-1, *(1,) * (images.ndim - 1))


def best_weight(errors: Float64Array, expected: float | None = None) -> float:
    """Return the weight of the likelihood that predicts best.

    It is the expected one, if that predicts as well as any to half a percent. Otherwise it is the
    smallest of those that predict nearly equally well.

    Parameters
    ----------
    errors : (len(WEIGHTS),)
        Sums over images for each of `WEIGHTS`. All may be infinite: then no weight is better.
    expected : float, optional
        What the weight should be if residuals are nothing but noise; not known by default. Where no
        weight makes a difference, as without bases, it is taken, or 1.
    """
    least = errors.min()
    if not np.isfinite(least) or errors.max() - least <= _ROUNDING * least:
        return 1.0 if expected is None else expected
    limit = least + min(_FORGONE * (errors[-1] - least), _ADDED * least)
    if expected is not None and _error_at(expected, errors) <= (1 + _AGREED) * least:
        return expected
    return min(weight for weight, error in zip(WEIGHTS, errors, strict=True) if error <= limit)


def _error_at(weight: float, errors: Float64Array) -> float:
    """Return the error of any weight, by interpolation between those that were tried."""
    return float(np.interp(-np.log2(weight), -np.log2(WEIGHTS), errors))


def lags_of(space: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many lags, from negative to positive, are looked at along each axis."""
    return tuple(2 * min((side - 1) // 2, _LARGEST_LAG) + 1 for side in space)


def correlation_sums(residuals: Array, is_seen: Array) -> tuple[Float64Array, Float64Array]:
    """Return sums over images of rho_n(h) and of its square, each in the shape of `lags_of`.

    Parameters
    ----------
    residuals : (N, C, *space)
        Pearson residuals, of mean 0; 0 where a voxel is missing.
    is_seen : (N, C, *space) bool
        Where a voxel is not missing.
    """
    space, xp = residuals.shape[2:], array_namespace(residuals)
    lags = lags_of(space)
    total, squares = xp.zeros(lags), xp.zeros(lags)
    padded = [side + lag // 2 for side, lag in zip(space, lags, strict=True)]
    bytes_per_image = 3 * 16 * residuals.shape[1] * math.prod(padded)
    for some in split_evenly(slice(0, len(residuals)), _TRANSFORM_BYTES // bytes_per_image):
        products, pairs = (
            _lagged_products(fields[some].astype(np.float64), padded, lags)
            for fields in (residuals, is_seen)
        )
        origin = (slice(None), *(slice(lag // 2, lag // 2 + 1) for lag in lags))
        has_residual = products[origin] > 0
        variance = xp.where(has_residual, products[origin], 1.0) / xp.maximum(pairs[origin], 1.0)
        is_known = has_residual & (pairs > _LEAST_PAIRS * pairs[origin])
        found = products / xp.maximum(pairs, 1.0) / variance
        found = xp.where(is_known, xp.clip(found, -1.0, 1.0), 0.0)
        total += found.sum(axis=0)
        squares += (found**2).sum(axis=0)
    return total, squares


def _lagged_products(fields: Array, padded: list[int], lags: tuple[int, ...]) -> Float64Array:
    """Return sums over voxels and channels of f(x) f(x + h), (N, *lags), by Fourier transforms."""
    xp, axes = array_namespace(fields), tuple(range(2, fields.ndim))
    power = xp.square(xp.abs(xp.fft.rfftn(fields, padded, axes=axes))).sum(axis=1)
    products = xp.fft.irfftn(power, padded, axes=tuple(axis - 1 for axis in axes))
    for axis, lag in enumerate(lags, start=1):
        products = xp.roll(products, lag // 2, axis=axis)
        products = products[(slice(None),) * axis + (slice(0, lag),)]
    found: Float64Array = products
    return found


def independent_share(total: Float64Array, squares: Float64Array, n_images: int) -> float:
    """Return the effective number of voxels over their number, at most 1.

    Parameters
    ----------
    total, squares : (*lags)
        Sums over all images, from `correlation_sums`.
    n_images : int
        At least 2.
    """
    if n_images < 2:
        raise ValueError(f"n_images must be an integer >= 2, got {n_images}")
    summed = float((total**2 - squares).sum()) / (n_images * (n_images - 1))
    return 1 / max(1.0, summed)
