"""From totals to single images: what is known of N images is known up to a rotation of them.

Sums weighted by latents give the space that the images span and, in it, their second moments: N
images G with the same span and moments, of which the true ones are Q G for some rotation Q. Two
attacks look for Q by what images are like: `independent_components` by how their values are
distributed, `matched_images` by their range: values of images are from 0 to 1.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from examples.federation.recorded_run import Seen

Array = NDArray[np.float64]


def images_by_moments(seen: Seen, tolerance: float) -> Array:
    """Return rows G (at most N, V) with F'F = G'G, from pairs F'F B = Z'F of all iterations.

    Parameters
    ----------
    seen : Seen
    tolerance : float
        Directions weaker than this share of the strongest are dropped: they are rounding, or what
        the approximation gets wrong.
    """
    known = [
        (mixture.T, direction)
        for mixture, direction in zip(seen.mixtures, seen.directions, strict=True)
        if direction is not None
    ]
    moments = np.concatenate([mixture for mixture, _ in known], axis=1)
    directions = np.concatenate([direction for _, direction in known], axis=1)
    scale = 1 / np.linalg.norm(directions, axis=0)
    left, strength, right = np.linalg.svd(directions * scale, full_matrices=False)
    kept = strength > tolerance * strength[0]
    moments = (moments * scale) @ right[kept].T / strength[kept]  # F'F in orthonormal directions
    within = left[:, kept].T @ moments
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    kept = values > tolerance * values[-1]
    rows = (moments @ vectors[:, kept] / np.sqrt(values[kept])).T
    return np.asarray(rows[::-1][: seen.n_images - 1])


def images_by_span(seen: Seen) -> Array:
    """Return rows G (at most N - 1, V) that span the mixtures, the strongest first."""
    mixtures = np.concatenate(seen.mixtures)
    mixtures = mixtures / np.linalg.norm(mixtures, axis=1, keepdims=True)
    _, strength, rows = np.linalg.svd(mixtures, full_matrices=False)
    rows = rows[: seen.n_images - 1] * strength[: seen.n_images - 1, None]
    # As large, all together, as images of values from 0 to 1 that have this mean can be.
    return np.asarray(rows * np.sqrt(_variance(seen) / np.square(rows).sum()))


def _variance(seen: Seen) -> float:
    return 0.6 * seen.n_images * float(np.sum(seen.mean * (1 - seen.mean)))


def independent_components(rows: Array) -> Array:
    """Return independent components of some rows, one per row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        analysis = FastICA(fun="exp", whiten="unit-variance", max_iter=300, random_state=0)
        return np.asarray(analysis.fit_transform(rows.T).T)


def matched_images(rows: Array, seen: Seen, n_steps: int = 300, seed: int = 0) -> Array:
    """Return N images less their mean, Q G, whose values are from 0 to 1 as nearly as can be.

    Projections in turn: onto the range of values, and onto rotations of what is known.
    """
    n_images = seen.n_images
    known = np.zeros((n_images, rows.shape[1]))
    known[: len(rows)] = rows
    rotation = _nearest_rotation(np.random.default_rng(seed).normal(size=(n_images, n_images)))
    for _ in range(n_steps):
        clipped = np.clip(rotation @ known + seen.mean, 0, 1)
        clipped -= clipped.mean(axis=0)
        rotation = _nearest_rotation(clipped @ known.T)
    return np.asarray(rotation @ known)


def _nearest_rotation(matrix: Array) -> Array:
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


def likeness(recovered: Array, images: Array, mean: Array) -> Array:
    """Return, for every image, its largest correlation with what was recovered, beyond the mean.

    Parameters
    ----------
    recovered : (M, V)
        Less the mean.
    images : (N, V)
    mean : (V,)
    """
    own = images - mean
    norms = np.linalg.norm(recovered, axis=1) + 1e-12
    products = np.abs(own @ recovered.T) / norms
    return np.asarray((products / np.linalg.norm(own, axis=1, keepdims=True)).max(axis=1))


def distance_from_span(seen: Seen, images: Array, share: float = 1e-6) -> Array:
    """Return what share of every image lies outside of what the mixtures span.

    Parameters
    ----------
    seen : Seen
    images : (N, V)
    share : float, default 1e-6
        Directions weaker than this share of the strongest are left out as rounding.
    """
    mixtures = np.concatenate(seen.mixtures)
    mixtures = mixtures / np.linalg.norm(mixtures, axis=1, keepdims=True)
    _, strength, rows = np.linalg.svd(mixtures, full_matrices=False)
    rows = rows[strength > share * strength[0]][: seen.n_images - 1]
    own = images - seen.mean
    outside = own - own @ rows.T @ rows
    return np.asarray(np.linalg.norm(outside, axis=1) / np.linalg.norm(own, axis=1))


def ranked_right(members: Array, others: Array) -> float:
    """Return how often a member has the lower value than another image (AUC)."""
    less = np.mean(members[:, None] < others[None])
    return float(less + np.mean(members[:, None] == others[None]) / 2)
