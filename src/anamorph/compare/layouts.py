"""Comparing models by what they predict of voxels that they never saw.

A box of every image is set to missing, models are fitted to the rest, and their predictions in the
boxes are compared with the truth. The paper compares four layouts in this way: latents that
control shape and appearance together, separate latents for each, shape alone, appearance alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import BoolArray, Float64Array, IntArray
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.run import Progress
from anamorph.images.collection import Images, open_images
from anamorph.images.errors import ImageError
from anamorph.images.hidden import Boxes, HiddenImages
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.checks import ArgumentError, check_choice, checked_components, checked_seed
from anamorph.model.finding import located
from anamorph.model.generator import Generator
from anamorph.model.hyperparameters import LAYOUTS
from anamorph.model.posterior import expect_images, find_posterior


@dataclass(frozen=True)
class Comparison:
    """How well layouts predict hidden voxels, image by image.

    Attributes
    ----------
    layouts : tuple of str
    log_likelihood : dict of (N,)
        By layout: ln p of the hidden voxels, each by itself, given the others: with the image that
        `impute` returns, for Gaussian images also its deviations, and its weight of the likelihood.
    squared_error : dict of (N,)
        By layout: sum over hidden voxels and channels of (expected - true)^2.
    n_hidden : (N,)
        Number of hidden voxels whose truth is known.
    """

    layouts: tuple[str, ...]
    log_likelihood: dict[str, Float64Array]
    squared_error: dict[str, Float64Array]
    n_hidden: IntArray


def hide_rectangles(
    images: NDArray[Any], fraction: float = 0.25, random_state: int = 0
) -> BoolArray:
    """Return which voxels to hide: a rectangle (a box in 3D) at a random place of each image.

    Rectangles have the proportions of the image, all the same size, as near to the fraction as
    the grid allows, and wrap around at the edges.

    Parameters
    ----------
    images : array of shape (N, C, *space)
    fraction : float
        Share of the voxels to hide.
    random_state : int
        Seed of the places.

    Returns
    -------
    array of bool, of shape (N, *space)
    """
    n_images, _, *space = np.shape(images)
    return Boxes.draw(n_images, tuple(space), fraction, checked_seed(random_state)).mask()


def compare_layouts(
    images: Images,
    n_components: int | tuple[int, int],
    *,
    layouts: Sequence[str] = LAYOUTS,
    fraction: float = 0.25,
    random_state: int = 0,
    progress: Callable[[str, Progress], object] | None = None,
    **model_arguments: Any,
) -> Comparison:
    """Fit models of several layouts to images with hidden boxes, and score what they predict.

    Parameters
    ----------
    images : array of shape (N, *space), or with channels; list of images or paths, or opened
        NaN is missing, and never counts.
    n_components : int or pair of int
        Number K of latents, the same for all layouts. Separate latents have K // 2 for appearance
        and the rest for shape, unless a pair says otherwise.
    layouts : sequence of str
        Of "joint", "separate", "shape" and "appearance".
    fraction : float
        Share of the voxels of each image to hide; see `hide_rectangles`.
    random_state : int
        Seed of the places of the boxes, and of the fits.
    progress : callable, optional
        Called with the layout and the `Progress` of its fit after every iteration.
    **model_arguments
        Other arguments of `ShapeAppearanceModel`.

    Returns
    -------
    Comparison
    """
    models = layout_models(
        n_components, layouts=layouts, random_state=random_state, **model_arguments
    )
    hidden = hide_boxes(images, next(iter(models.values())), fraction, random_state)
    log_likelihood, squared_error = {}, {}
    n_hidden = np.zeros(len(hidden), np.intp)
    for name, model in models.items():
        model.fit(hidden, callback=_named(progress, name))
        log_likelihood[name], squared_error[name], n_hidden = score_hidden(model, hidden)
    return Comparison(tuple(models), log_likelihood, squared_error, n_hidden)


def layout_models(
    n_components: int | tuple[int, int],
    *,
    layouts: Sequence[str] = LAYOUTS,
    random_state: int = 0,
    **model_arguments: Any,
) -> dict[str, ShapeAppearanceModel]:
    """Return the models that `compare_layouts` fits, by layout.

    Parameters
    ----------
    n_components, layouts, random_state, **model_arguments
        As for `compare_layouts`.
    """
    if not layouts:
        raise ArgumentError(f"layouts must be some of {LAYOUTS}, got none")
    return {name: _model(name, n_components, random_state, model_arguments) for name in layouts}


def _model(
    layout: str, n_components: int | tuple[int, int], seed: int, arguments: dict[str, Any]
) -> ShapeAppearanceModel:
    check_choice("a layout", layout, LAYOUTS)
    checked = checked_components(n_components)
    total = checked if isinstance(checked, int) else sum(checked)
    if layout == "separate" and total < 2:
        raise ArgumentError(
            f"n_components must be at least 2 for layout 'separate', got {n_components!r}"
        )
    number = checked if layout == "separate" else total
    return ShapeAppearanceModel(number, latents=layout, random_state=seed, **arguments)


def hide_boxes(
    images: Images,
    model: ShapeAppearanceModel,
    fraction: float = 0.25,
    random_state: int = 0,
) -> HiddenImages:
    """Return images with a box of each hidden, for a model to be fitted to and scored by.

    Parameters
    ----------
    images, fraction, random_state
        As for `compare_layouts`.
    model : ShapeAppearanceModel
        Fitted or not: it says what the values of images are.

    Returns
    -------
    HiddenImages
    """
    check_choice("likelihood", model.likelihood, tuple(LIKELIHOODS))
    opened = open_images(images, model.likelihood, model.channel_axis, scale=model.scale)
    if isinstance(opened, HiddenImages):
        raise TypeError("images must not have hidden boxes already: their truth would not count")
    seed = checked_seed(random_state)
    hidden = HiddenImages(opened, Boxes.draw(len(opened), opened.format.space, fraction, seed))
    if not any(_has_truth(hidden, n) for n in range(len(hidden))):
        raise ImageError(
            "no image has an observed voxel in its hidden box, so that nothing can be compared: "
            f"hide a larger fraction than {fraction}, or give images with less that is missing"
        )
    return hidden


def _has_truth(images: HiddenImages, n: int) -> bool:
    """Tell whether something that is hidden in an image is known."""
    return not bool(np.isnan(images.read_hidden(slice(n, n + 1))).all())


def _named(
    progress: Callable[[str, Progress], object] | None, layout: str
) -> Callable[[Progress], object] | None:
    return None if progress is None else lambda step: progress(layout, step)


def score_hidden(
    model: ShapeAppearanceModel, images: HiddenImages
) -> tuple[Float64Array, Float64Array, IntArray]:
    """Score what a fitted model predicts of hidden voxels from the others of the same image.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : HiddenImages
        From `hide_boxes`.

    Returns
    -------
    log_likelihood, squared_error, n_hidden : arrays of shape (N,)
        As in `Comparison`.
    """
    predictor = model.imputer_

    def score(generator: Generator, part: slice) -> tuple[Float64Array, Float64Array, IntArray]:
        likelihood, precision = generator.settings.likelihood, generator.parameters.noise_precision
        observed = generator.own(images.read(part))
        here = located(generator, observed) if generator.settings.has_poses else generator
        posterior = find_posterior(here, observed, exact_curvature=False)
        expected, spread = expect_images(here, posterior)
        truth = generator.own(images.read_hidden(part))
        errors = np.square(expected.astype(np.float64) - truth)
        within_image = tuple(range(1, truth.ndim))
        is_known = ~np.isnan(truth).all(axis=1)
        return (
            to_host(likelihood.log_predictive(truth, expected, spread, precision)),
            to_host(np.nansum(errors, axis=within_image)),
            to_host(np.count_nonzero(is_known, axis=within_image[:-1])),
        )

    parts = predictor.in_parts(score, len(images))
    log_likelihood, squared_error, n_hidden = (
        np.concatenate(values) for values in zip(*parts, strict=True)
    )
    return log_likelihood, squared_error, n_hidden
