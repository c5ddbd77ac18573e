"""The images that pictures show, (N, C, *space), and checks of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.latents import mode_standard_deviations
from anamorph.model.checks import check_integer

Array = NDArray[np.floating]
Images = NDArray[Any] | Sequence[Any] | ImageCollection  # forms that have a length
MOST_IMAGES = 8  # shown by default


def observed_images(model: ShapeAppearanceModel, images: Any) -> Array:
    """Return all images of a user with channels first, NaN where missing."""
    collection = model.checked_images(images)
    return collection.read(slice(0, len(collection)))


def along_mode(
    model: ShapeAppearanceModel, mode: int, deviations: Sequence[float] | Array, part: str
) -> Array:
    """Return the images along one mode, at some standard deviations."""
    check_is_fitted(model, "mean_")
    n_latents = len(model.latent_precision_)
    check_integer("a mode", mode, 0, n_latents - 1)
    latents = np.zeros((len(deviations), n_latents))
    latents[:, mode] = deviations
    latents *= mode_standard_deviations(model.latent_precision_)
    return model.expected_images(latents, part)


def mean_image(model: ShapeAppearanceModel) -> Array:
    """Return the image of z = 0, (1, C, *space)."""
    return model.settings_.likelihood.expectation(model.mean_[None])


def take_images(images: Images, chosen: list[int]) -> Any:
    """Return some of the images in the form they were given, without reading the others."""
    if isinstance(images, ImageCollection):
        return images.subset(chosen)
    return images[chosen] if isinstance(images, np.ndarray) else [images[n] for n in chosen]


def checked_indices(indices: Iterable[int] | None, n_images: int) -> list[int]:
    """Return the numbers of the images to show; those of the first few by default."""
    chosen = list(range(min(MOST_IMAGES, n_images)) if indices is None else indices)
    if not chosen:
        raise ValueError("no images to show: indices are empty")
    for index in chosen:
        check_integer("an index", index, 0, n_images - 1)
    return chosen


def checked_latents(model: ShapeAppearanceModel, latents: Any, n_rows: int) -> Array:
    """Return latents (n_rows, K) as an array."""
    check_is_fitted(model, "mean_")
    codes = [np.asarray(row, np.float64) for row in latents]
    n_latents = len(model.latent_precision_)
    wrong = [row.shape for row in codes if row.shape != (n_latents,)]
    if wrong or len(codes) != n_rows:
        raise ValueError(
            f"latents must be {n_rows} x {n_latents}, a row of K for each image, got "
            f"{len(codes)} rows" + (f", one of shape {wrong[0]}" if wrong else "")
        )
    return np.array(codes)
