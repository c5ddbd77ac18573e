"""Images in the space of the template, and back: what psi and its inverse do to them.

An image is the appearance, warped: f(x) = a(psi(x)). So psi takes places in an image to places in
the template, f(psi^-1) is the image in the space of the template, and |D psi^-1| tells how much
larger the image is there than the template. Fields are (N, C, *space), NaN where missing, in memory
or on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from scipy.ndimage import gaussian_filter

from anamorph.arrays.devices import array_namespace, to_host
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.geometry import jacobian_determinant
from anamorph.geometry.inverses import find_places, move_points
from anamorph.geometry.warps import pull_batch, push_batch
from anamorph.model.generator import Generator
from anamorph.model.posing import PosedGenerator, is_outside, voxel_places
from anamorph.model.predicting import Predictor

LINEAR, NEAREST = "linear", "nearest"
INTERPOLATIONS = (LINEAR, NEAREST)

_HALF = 0.5
_FINEST = 4  # parts of a voxel along each axis
_FWHM = 2 * math.sqrt(2 * math.log(2))  # of a Gaussian, in standard deviations

#: Given the displacement (n, d, *space) of a part of the images, and which part it is.
UseWarps = Callable[[Generator, Array, slice], Array]


def with_warps(
    predictor: Predictor,
    latents: Float64Array,
    out: Array,
    use: UseWarps,
    *,
    inverse: bool,
    poses: Float64Array | None = None,
    residuals: Array | None = None,
) -> Array:
    """Fill an array (N, ...) with what is done with the warps of latents (N, K), part by part.

    Parameters
    ----------
    predictor : Predictor
    latents : array of shape (N, K)
    out : array of shape (N, ...)
    use : callable
        Returns a part of the result, given the generator and displacements on its device.
    inverse : bool
        Whether displacements are those of psi^-1, and not those of psi.
    poses : array of shape (N, P), optional
        Of the images: displacements are then those of psi(R x), or of R^-1 psi^-1.
    residuals : array of shape (N, d, *space), optional
        Residual velocities of the images; none by default.
    """

    def fill(generator: Generator, part: slice) -> None:
        some = generator.own(latents[part])
        bent = generator.bent(None if residuals is None else residuals[part])
        displacement = bent.inverse_displacement(some) if inverse else None
        if displacement is None:
            displacement = bent.displacement(some)
        if displacement is None:  # a model without shape
            settings = generator.settings
            shape = (len(some), settings.n_dims, *settings.space)
            displacement = np.zeros_like(generator.parameters.mean, shape=shape)
        if poses is not None:
            posed = PosedGenerator.of(generator, poses[part])
            displacement = (posed.placed_inverse if inverse else posed.placed)(displacement)
        out[part] = to_host(use(generator, displacement, part))

    predictor.in_parts(fill, len(latents))
    return out


def warped(images: Array, displacement: Array, interpolation: str = LINEAR) -> Array:
    """Return images pulled by displacements, NaN where most of what is interpolated is missing."""
    if interpolation == NEAREST:
        return _pulled_from_nearest(images, displacement)
    missing = np.isnan(images)
    if not bool(missing.any()):
        return pull_batch(images, displacement)
    xp = array_namespace(images)
    observed = pull_batch(xp.where(missing, 0, 1).astype(images.dtype), displacement)
    pulled = pull_batch(xp.where(missing, 0, images).astype(images.dtype), displacement)
    is_known = observed >= _HALF
    known: Array = xp.where(is_known, pulled / xp.where(is_known, observed, 1), np.float32(np.nan))
    return known


def without_outside(images: Array, displacement: Array) -> Array:
    """Return images (N, C, *space) with NaN where displacements lead out of the grid.

    Poses, unlike warps, do not live on a torus: what they lead to is not on the other side.
    """
    places = displacement + voxel_places(images.shape[2:], displacement)
    return np.where(is_outside(places)[:, None], np.float32(np.nan), images)


def _pulled_from_nearest(images: Array, displacement: Array) -> Array:
    xp, space = array_namespace(images), images.shape[2:]
    voxel = xp.zeros((len(images), *space), np.int64)
    for axis, length in enumerate(space):
        index = xp.arange(length).reshape(-1, *(1,) * (len(space) - 1 - axis))
        place = xp.floor(index + displacement[:, axis] + _HALF).astype(np.int64)
        voxel = voxel * length + place % length
    flat = images.reshape(*images.shape[:2], -1)
    nearest = xp.take_along_axis(flat, voxel.reshape(len(images), 1, -1), axis=2)
    return np.reshape(nearest, images.shape)


def modulated(images: Array, displacement: Array) -> Array:
    """Return images pushed along psi: what there is in a region is in its image, mass preserved.

    Voxels are pushed in parts, so fine that no voxel of the template is left out where psi expands.
    Missing voxels have no mass. The sum over a channel stays the same, to float32.

    Parameters
    ----------
    images : array of shape (N, C, *space)
    displacement : array of shape (N, d, *space)
        Of psi.
    """
    xp = array_namespace(images)
    mass = xp.where(np.isnan(images), 0, images).astype(images.dtype)
    d = displacement.shape[1]
    stretch = max(
        float(np.abs(np.roll(displacement, -1, axis) - displacement).max()) for axis in range(-d, 0)
    )
    n_parts = min(_FINEST, max(1, math.ceil(1 + stretch)))
    offsets = (np.arange(n_parts) + 0.5) / n_parts - 0.5
    total = xp.zeros_like(mass)
    for offset in product(offsets.tolist(), repeat=d):
        shift = xp.zeros_like(displacement)
        for axis, along in enumerate(offset):
            shift[:, axis] = along
        total += push_batch(pull_batch(mass, shift), pull_batch(displacement, shift) + shift)
    pushed: Array = total / mass.dtype.type(n_parts**d)
    return pushed


def volume_changes(inverse: Array, *, log: bool = False) -> Array:
    """Return |D psi^-1| on the grid of the template, (N, 1, *space).

    It is 2 where images are twice as large as the template.

    Parameters
    ----------
    inverse : array of shape (N, d, *space)
        Displacement of psi^-1.
    log : bool
        Whether to return logarithms, which are NaN where the inverse folds; False by default.
    """
    determinant = jacobian_determinant(to_host(inverse))[:, None]
    if not log:
        return determinant
    is_positive = determinant > 0
    logarithm = np.log(np.where(is_positive, determinant, 1))
    return np.where(is_positive, logarithm, np.float32(np.nan))


def smoothed(images: Float32Array, fwhm: float, voxel_size: tuple[float, ...]) -> Float32Array:
    """Return images (N, C, *space) convolved with a Gaussian, missing voxels left out.

    Parameters
    ----------
    images : array of shape (N, C, *space)
    fwhm : float
        Full width at half maximum, in units of the voxel size; 0 for none.
    voxel_size : d numbers
    """
    if not (np.isfinite(fwhm) and fwhm >= 0):
        raise ValueError(f"fwhm must be a number >= 0, got {fwhm!r}")
    if fwhm == 0:
        return images
    sigma = (0, 0, *(fwhm / _FWHM / size for size in voxel_size))
    missing = np.isnan(images)
    smooth = gaussian_filter(np.where(missing, 0, images), sigma, mode="wrap")
    if missing.any():
        weights = gaussian_filter((~missing).astype(np.float32), sigma, mode="wrap")
        smooth = np.where(missing, np.nan, smooth / np.where(missing, 1, weights))
    return np.asarray(smooth, np.float32)


def points_to_template(displacement: Array, voxels: Float64Array) -> Float64Array:
    """Return psi of points (n, 2 or 3) of an image, given its displacement (d, *space)."""
    return move_points(displacement, voxels)


def points_from_template(displacement: Array, inverse: Array, voxels: Float64Array) -> Float64Array:
    """Return psi^-1 of points (n, 2 or 3) of the template, exact for psi on its grid.

    Where psi folds, so that there is no such place, points go where the displacement of the inverse
    along the geodesic takes them.
    """
    places, _ = find_places(displacement, voxels, move_points(inverse, voxels), tolerance=1e-5)
    return places
