"""What a report measures: how much each mode changes images, and how well the model fits them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.geometry import pull
from anamorph.images.collection import ImageCollection
from anamorph.latents import mode_standard_deviations
from anamorph.plots.panels import Images, checked_latents, take_images

_MOST_IMAGES = 200
_MOST_VALUES = 2**25  # voxels times channels
_FEWEST_IMAGES = 12


@dataclass(frozen=True)
class ModeShares:
    """Shares of the variance of images, by mode.

    Attributes
    ----------
    together : array of shape (K,)
        Share of each mode; their sum is 1.
    shape, appearance : arrays of shape (K,)
        Shares of the shape alone and of the appearance alone of each mode. Their sum may differ
        from `together`, since one may undo what the other does.
    """

    together: Float64Array
    shape: Float64Array
    appearance: Float64Array

    @property
    def order(self) -> list[int]:
        """The modes from that with the largest share: their order wherever they are shown."""
        return [int(mode) for mode in np.argsort(-self.together, kind="stable")]

    def ordered(self, modes: Iterable[int]) -> list[int]:
        """Return some modes in that order."""
        chosen = set(modes)
        return [mode for mode in self.order if mode in chosen]


def mode_shares(model: ShapeAppearanceModel) -> ModeShares:
    """Return how much each mode changes images, measured in the units of images.

    The variance of a mode is the mean squared difference between the mean image and the images at
    one standard deviation to either side. Warps are first-order, psi = id - v, which costs two
    pulls per mode instead of two shootings.

    Parameters
    ----------
    model : ShapeAppearanceModel

    Returns
    -------
    ModeShares
    """
    layout = model.settings_.layout
    deviations = mode_standard_deviations(model.latent_precision_)
    no_appearance = np.zeros_like(model.mean_)
    no_shape = np.zeros((len(model.settings_.space), *model.settings_.space), np.float32)
    variances = np.zeros((layout.n_latents, 3))
    for mode, deviation in enumerate(deviations):
        appearance, velocity = no_appearance, no_shape
        if mode < layout.n_appearance:
            appearance = deviation * model.appearance_basis_[mode]
        if 0 <= mode - layout.first_shape < layout.n_shape:
            velocity = deviation * model.shape_basis_[mode - layout.first_shape]
        changes = ((appearance, velocity), (no_appearance, velocity), (appearance, no_shape))
        variances[mode] = [_measure_variance(model, *change) for change in changes]
    total = max(variances[:, 0].sum(), np.finfo(np.float64).tiny)
    return ModeShares(*(variances / total).T)


def _measure_variance(model: ShapeAppearanceModel, appearance: Array, velocity: Array) -> float:
    expectation = model.settings_.likelihood.expectation
    mean = expectation(model.mean_[None])
    difference = 0.0
    for sign in (np.float32(-1), np.float32(1)):
        warped = pull(model.mean_ + sign * appearance.astype(np.float32), -sign * velocity)
        difference += float(np.square(expectation(warped[None]) - mean).sum(dtype=np.float64))
    return difference / 2


@dataclass(frozen=True)
class Examined:
    """The images that a report examined, and how well the model fits them.

    Attributes
    ----------
    images : ImageCollection
        n images.
    latents : array of shape (n, K)
    poses : array of shape (n, P), or None
        Of a model with poses.
    fit : array of shape (n,)
        Log-likelihood per observed voxel.
    names : n strings
    n_images : int
        Number of images to choose from.
    """

    images: ImageCollection
    latents: Float64Array
    poses: Float64Array | None
    fit: Float64Array
    names: list[str]
    n_images: int

    @property
    def order(self) -> list[int]:
        """Numbers of the images, from the best to the worst fit."""
        return [int(n) for n in np.argsort(-self.fit, kind="stable")]

    def pick_evenly(self, count: int) -> list[int]:
        """Return the numbers of a few images, in even steps from the best to the worst fit."""
        ranks = np.linspace(0, len(self.fit) - 1, min(count, len(self.fit)))
        return [self.order[rank] for rank in ranks.round().astype(int)]


def examine(
    model: ShapeAppearanceModel,
    images: Images,
    latents: ArrayLike | None,
    names: Sequence[str] | None,
) -> Examined:
    """Measure how well a model fits images: all of them, or evenly spaced ones if they are many.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : array, list of arrays or paths, or collection
        N images; those that are not examined are not read.
    latents : array of shape (N, K), or None
        None to encode the examined images.
    names : N strings, or None
        None for the names of their files, or their numbers.

    Returns
    -------
    Examined
    """
    n_images = len(images)
    most = int(np.clip(_MOST_VALUES // model.mean_.size, _FEWEST_IMAGES, _MOST_IMAGES))
    count = min(n_images, most)
    numbers = [int(n) for n in np.linspace(0, n_images - 1, count).round()]
    some = model.checked_images(take_images(images, numbers))
    if latents is None:
        encoded = model.encode(some)
        codes, poses = encoded.latents, encoded.poses
    else:
        codes = np.asarray(checked_latents(model, latents, n_images)[numbers], np.float64)
        poses = model.poses(some) if model.settings_.has_poses else None
    if names is not None:
        shown = [str(names[n]) for n in numbers]
    elif isinstance(some.identities, range):  # of arrays, which have no names
        shown = [f"image {n}" for n in numbers]
    else:
        shown = [str(identity) for identity in some.identities]
    fit = model.log_likelihood(some, codes, poses) / count_observed(some)
    return Examined(some, codes, poses, fit, shown, n_images)


def count_observed(images: ImageCollection) -> Float64Array:
    """Return how many voxels of each image are observed, at least 1, (N,)."""
    counts = [
        np.isfinite(images.read(slice(n, n + 1))).all(axis=1).sum() for n in range(len(images))
    ]
    return np.maximum(np.array(counts, np.float64), 1)
