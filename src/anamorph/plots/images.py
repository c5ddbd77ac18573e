"""Pictures of images: fits, modes, samples, latent arithmetic, imputed voxels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.model.checks import check_integer
from anamorph.plots.panels import (
    MOST_IMAGES,
    AnyFigure,
    Images,
    along_mode,
    checked_indices,
    checked_latents,
    draw_rows,
    image_titles,
    matched_images,
    mean_image,
    missing_key,
    observed_images,
    signed,
    take_images,
)
from anamorph.plots.rendering import MISSING, Limits

_MOST_MODES = 5


def plot_fits(
    model: ShapeAppearanceModel,
    images: Images,
    latents: ArrayLike | None = None,
    indices: Iterable[int] | None = None,
    *,
    poses: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw images, and below them their reconstructions, also by shape and appearance alone.

    Reconstructions are where the images are (`align`). If each image has a gain of its own
    (`intensity`), images are shown without it.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    images : array of shape (N, *space), or with channels; list of such arrays or of files
        As in ``model.transform``, or opened by ``model.open_files``; NaN is missing. Only the
        images that are shown are read.
    latents : array of shape (N, K), optional
        Latents of all N images; by default the shown images are encoded.
    poses : array of shape (N, P), optional
        Poses of all N images, of a model with poses; by default those of the shown images are
        found.
    indices : iterable of int, optional
        Numbers of the images to show; the first eight by default.
    names : N strings, optional
        Names of all N images; their numbers by default.
    limits : pair of float, optional
        Values to show as black and as white; by default from the range of the images.
    voxel : 3 int, optional
        Where the slices through volumes meet; the centre by default.
    figure : Figure or SubFigure, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Figure or SubFigure
        Four rows, and a column per image.
    """
    chosen = checked_indices(indices, len(images))
    some = take_images(images, chosen)
    data = observed_images(model, some)
    if latents is None:
        encoded = model.encode(some)
        codes: Array = encoded.latents
        placed = encoded.poses
    else:
        codes = checked_latents(model, latents, len(images))[chosen]
        placed = model.poses(some) if poses is None and model.settings_.has_poses else None
    if poses is not None:
        placed = np.asarray(poses)[chosen]
    explained = model.expected_images(codes, poses=placed)
    data = matched_images(model, data, explained)
    rows = [
        ("data", data),
        ("shape and\nappearance", explained),
        ("shape only", model.expected_images(codes, "shape", placed)),
        ("appearance\nonly", model.expected_images(codes, "appearance", placed)),
    ]
    titles = image_titles(names, chosen, len(images))
    return draw_rows(model, rows, titles, data, limits, voxel, figure, missing_key(data))


def plot_modes(
    model: ShapeAppearanceModel,
    modes: Iterable[int] | None = None,
    deviations: Sequence[float] = (-5, -3, -1, 1, 3, 5),
    *,
    part: str = "both",
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    length: float | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw the images along modes: one latent at a time differs from zero.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    modes : iterable of int, optional
        Numbers of the latents, from 0; the first five by default.
    deviations : sequence of float
        Values of the latent, in standard deviations of the prior N(0, A^-1); by default -5, -3,
        -1, 1, 3 and 5.
    part : {"both", "shape", "appearance"}
        What the latent changes; "both" by default.
    names : strings, optional
        Names of the modes that are shown; their numbers by default.
    length : float, optional
        Of the longer side of an image, in inches; by default 1.15, or 1.9 for volumes.
    limits, voxel, figure
        As in `plot_fits`.

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
    deciding = mean_image(model)
    return draw_rows(model, rows, titles, deciding, limits, voxel, figure, length=length)


def plot_samples(
    model: ShapeAppearanceModel,
    n_pairs: int = 8,
    random_state: int | None = None,
    *,
    limits: Limits | None = None,
    voxel: Sequence[int] | None = None,
    figure: AnyFigure | None = None,
) -> AnyFigure:
    """Draw random images, each above the image with the opposite latents.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    n_pairs : int
        Number of pairs, eight in a row; 8 by default.
    random_state : int, optional
        Seed, as in ``model.sample``; by default a new one each time.
    limits, voxel, figure
        As in `plot_fits`.

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
    """Draw a sum of latents: the images of its terms, and the image of the sum.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    terms : sequence of (weight, latents, name)
        Latents of shape (K,), e.g. ``[(1, z1, "smiling-1"), (-1, z2, "neutral-1"),
        (1, z3, "neutral-2")]``.
    result : str
        Name of the sum; "result" by default.
    limits, voxel, figure
        As in `plot_fits`.

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
    signs = [*(_format_operator(weight, n == 0) for n, weight in enumerate(weights)), "="]
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
    """Draw images with missing voxels, and below them the same images with voxels filled in.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    images, indices, names, limits, voxel, figure
        As in `plot_fits`.

    Returns
    -------
    Figure or SubFigure
        Two rows, and a column per image.
    """
    chosen = checked_indices(indices, len(images))
    some = take_images(images, chosen)
    filled, _ = model.imputed_images(some)
    rows = [("observed", observed_images(model, some)), ("filled in", filled)]
    keys = [Patch(color=MISSING, label="missing")]
    titles = image_titles(names, chosen, len(images))
    return draw_rows(model, rows, titles, filled, limits, voxel, figure, keys)


def _format_operator(weight: float, is_first: bool) -> str:
    sign = "\N{MINUS SIGN}" if weight < 0 else "" if is_first else "+"
    size = "" if abs(weight) == 1 else f"{abs(weight):g} ×"
    return f"{sign} {size}".strip()
