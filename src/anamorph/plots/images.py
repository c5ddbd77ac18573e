"""Pictures of images: fits, modes, samples, latent arithmetic, what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph.estimator import ShapeAppearanceModel
from anamorph.model.arguments import check_integer
from anamorph.plots.model_images import (
    MOST_IMAGES,
    Images,
    along_mode,
    checked_indices,
    checked_latents,
    mean_image,
    observed_images,
    take_images,
)
from anamorph.plots.panels import AnyFigure, draw_rows, image_titles, signed
from anamorph.plots.rendering import MISSING, Limits

Array = NDArray[np.floating]
_MOST_MODES = 5


def plot_fits(
    model: ShapeAppearanceModel,
    images: Images,
    latents: ArrayLike | None = None,
    indices: Iterable[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw images, and below them what the model makes of them, by shape and by appearance.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted one.
    images : array of shape (N, *space), or with channels; list of such arrays or of files
        As for ``model.transform``, or opened by ``model.open_files``; NaN is missing. Only those
        that are shown are read.
    latents : array of shape (N, K), optional
        Of all N images; found from those that are shown by default.
    indices : iterable of int, optional
        Which images to show; the first eight by default.
    names : N strings, optional
        Of all N images; their numbers by default.
    limits : pair of float, optional
        Values to show as black and as white.
    voxel : 3 int, optional
        Where the slices through volumes meet; the centre by default.
    figure : Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    Figure or SubFigure
        Four rows, and a column per image.
    """
    chosen = checked_indices(indices, len(images))
    some = take_images(images, chosen)
    data = observed_images(model, some)
    if latents is None:
        codes: Array = model.transform(some)
    else:
        codes = checked_latents(model, latents, len(images))[chosen]
    rows = [
        ("data", data),
        ("shape and\nappearance", model.expected_images(codes)),
        ("shape only", model.expected_images(codes, "shape")),
        ("appearance\nonly", model.expected_images(codes, "appearance")),
    ]
    return draw_rows(
        model, rows, image_titles(names, chosen, len(images)), data, limits, voxel, figure
    )


def plot_modes(
    model: ShapeAppearanceModel,
    modes: Iterable[int] | None = None,
    deviations: Sequence[float] = (-5, -3, -1, 1, 3, 5),
    *,
    part: str = "both",
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw what the image becomes as one latent at a time departs from zero.

    Parameters
    ----------
    model : ShapeAppearanceModel
    modes : iterable of int, optional
        Which latents; the first five by default.
    deviations : sequence of float
        How far each goes, in standard deviations of the prior N(0, A^-1).
    part : {"both", "shape", "appearance"}
        What of the mode to show.
    names : strings, optional
        Of the modes that are shown; their numbers by default.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        A row per mode, and a column per deviation.
    """
    check_is_fitted(model, "mean_")
    n_latents = len(model.latent_precision_)
    chosen = range(min(_MOST_MODES, n_latents)) if modes is None else list(modes)
    if not chosen or not len(deviations):
        raise ValueError("modes and deviations must not be empty")
    if names is None:
        names = [f"mode {mode + 1}" for mode in chosen]
    if len(names) != len(chosen):
        raise ValueError(f"names must be {len(chosen)}, one for each mode, got {len(names)}")
    images = [along_mode(model, mode, deviations, part) for mode in chosen]
    rows = list(zip(names, images, strict=True))
    titles = [f"{signed(deviation)} s.d." for deviation in deviations]
    return draw_rows(model, rows, titles, mean_image(model), limits, voxel, figure)


def plot_samples(
    model: ShapeAppearanceModel,
    n_pairs: int = 8,
    random_state: int | None = None,
    *,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw random images, each above the one whose latents are the opposite.

    Parameters
    ----------
    model : ShapeAppearanceModel
    n_pairs : int
        How many pairs; there are eight in a row.
    random_state : int, optional
        Seed of the latents, as for ``model.sample``.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
    """
    check_integer("n_pairs", n_pairs, 1)
    _, latents = model.sample(n_pairs, random_state)
    rows = [
        (name, model.expected_images(sign * latents[first : first + MOST_IMAGES]))
        for first in range(0, n_pairs, MOST_IMAGES)
        for name, sign in (("z", 1), ("\N{MINUS SIGN}z", -1))
    ]
    return draw_rows(model, rows, None, mean_image(model), limits, voxel, figure)


def plot_arithmetic(
    model: ShapeAppearanceModel,
    terms: Sequence[tuple[float, ArrayLike, str]],
    *,
    result: str = "result",
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw a sum of latents, as images of its terms and of what they add up to.

    Parameters
    ----------
    model : ShapeAppearanceModel
    terms : sequence of (weight, latents, name)
        Latents of shape (K,), e.g. ``[(1, z1, "smiling-1"), (-1, z2, "neutral-1"),
        (1, z3, "neutral-2")]``.
    result : str
        Name of the sum.
    limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        One row: the terms, then their sum.
    """
    check_is_fitted(model, "mean_")
    if not terms:
        raise ValueError("terms must not be empty: give (weight, latents, name) of each")
    weights = np.array([weight for weight, _, _ in terms], np.float64)
    codes = checked_latents(model, [np.asarray(z) for _, z, _ in terms], len(terms))
    images = model.expected_images(np.concatenate([codes, (weights @ codes)[None]]))
    names = [*(name for *_, name in terms), result]
    figure = draw_rows(model, [("", images)], names, mean_image(model), limits, voxel, figure)
    signs = [*(_operator(weight, n == 0) for n, weight in enumerate(weights)), "="]
    for axes, sign in zip(figure.axes[-len(signs) :], signs, strict=True):
        axes.set_ylabel(sign, rotation=0, ha="right", va="center", fontsize="x-large")
    return figure


def plot_imputed(
    model: ShapeAppearanceModel,
    images: Images,
    indices: Iterable[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw images with missing voxels, and the same with what the model expects there.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images, indices, names, limits, voxel, figure
        As for `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        Two rows, and a column per image.
    """
    chosen = checked_indices(indices, len(images))
    some = take_images(images, chosen)
    filled = model.imputed_images(some)
    rows = [("observed", observed_images(model, some)), ("filled in", filled)]
    keys = [Patch(color=MISSING, label="missing")]
    titles = image_titles(names, chosen, len(images))
    return draw_rows(model, rows, titles, filled, limits, voxel, figure, keys)


def _operator(weight: float, is_first: bool) -> str:
    sign = "\N{MINUS SIGN}" if weight < 0 else "" if is_first else "+"
    size = "" if abs(weight) == 1 else f"{abs(weight):g} ×"
    return f"{sign} {size}".strip()
