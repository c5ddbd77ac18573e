"""The images that a report examines, and those of them that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.plots.model_images import Images, checked_latents, take_images

Float64Array = NDArray[np.float64]

_MOST_IMAGES = 200
_MOST_VALUES = 2**25  # voxels times channels
_FEWEST_IMAGES = 12


@dataclass(frozen=True)
class Examined:
    """The images that a report examined, and how well the model fits them.

    Attributes
    ----------
    images : ImageCollection
        n images.
    latents : array of shape (n, K)
    fit : array of shape (n,)
        Log-likelihood per observed voxel.
    names : n strings
    n_images : int
        Number of images to choose from.
    """

    images: ImageCollection
    latents: Float64Array
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
        codes = model.transform(some)
    else:
        codes = np.asarray(checked_latents(model, latents, n_images)[numbers], np.float64)
    if names is not None:
        shown = [str(names[n]) for n in numbers]
    elif isinstance(some.identities, range):  # of arrays, which have no names
        shown = [f"image {n}" for n in numbers]
    else:
        shown = [str(identity) for identity in some.identities]
    fit = model.log_likelihood(some, codes) / _count_observed(some)
    return Examined(some, codes, fit, shown, n_images)


def _count_observed(images: ImageCollection) -> Float64Array:
    counts = [
        np.isfinite(images.read(slice(n, n + 1))).all(axis=1).sum() for n in range(len(images))
    ]
    return np.maximum(np.array(counts, np.float64), 1)
