"""Simple ways to predict hidden voxels: ridge regression, PPCA, nearest neighbours, factors.

Each predicts all voxels of every test image from those that are observed. What it must choose, it
chooses by cross-validation on training images. Images are rows of numbers here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

from examples.prediction.datasets import Array, Split

Float64 = NDArray[np.float64]

N_FOLDS = 5
NUMBERS_OF_LATENTS = (1, 2, 4, 8, 16, 32, 64)
NUMBERS_OF_FACTORS = (2, 8, 32)
NUMBERS_OF_NEIGHBOURS = (1, 2, 4, 8, 16, 32)
#: Penalties of ridge regression, in shares of the mean variance that training images have.
PENALTIES = tuple(10.0**power for power in np.arange(-3, 3.5, 0.5))

#: From training rows, a row with NaN and choices to a prediction of the row for each choice.
Method = Callable[[Float64, Float64, Sequence[float]], list[Float64]]


@dataclass(frozen=True)
class LinearModel:
    """x ~ N(mean, W W' + diag(noise)), in float64.

    Attributes
    ----------
    mean : (D,)
    weights : (D, K)
        W.
    noise : (D,)
        Variances.
    """

    mean: Float64
    weights: Float64
    noise: Float64

    def predict(self, row: Float64) -> Float64:
        """Return what is expected of a row (D,), given its numbers that are not NaN."""
        seen = ~np.isnan(row)
        weighted = self.weights[seen] / self.noise[seen, None]
        precision = np.eye(self.weights.shape[1]) + self.weights[seen].T @ weighted
        latents = np.linalg.solve(precision, weighted.T @ (row[seen] - self.mean[seen]))
        return np.asarray(self.mean + self.weights @ latents)

    def log_density(self, rows: Float64) -> Float64:
        """Return ln p of rows (N, D), (N,)."""
        centred = rows - self.mean
        weighted = self.weights / self.noise[:, None]
        precision = np.eye(self.weights.shape[1]) + self.weights.T @ weighted
        projected = centred @ weighted
        explained = np.sum(projected * np.linalg.solve(precision, projected.T).T, axis=1)
        distance = np.sum(centred**2 / self.noise, axis=1) - explained
        log_determinant = np.log(self.noise).sum() + np.linalg.slogdet(precision)[1]
        return np.asarray(-0.5 * (distance + log_determinant + len(self.mean) * np.log(2 * np.pi)))


def probabilistic_pca(rows: Float64, n_latents: int) -> LinearModel:
    """Return the PPCA of most likelihood (Tipping and Bishop 1999)."""
    mean = rows.mean(axis=0)
    _, singular, right = np.linalg.svd(rows - mean, full_matrices=False)
    variances, n_numbers = singular**2 / len(rows), rows.shape[1]
    n_latents = min(n_latents, len(rows) - 2)
    noise = variances[n_latents:].sum() / (n_numbers - n_latents)
    weights = right[:n_latents].T * np.sqrt(np.maximum(variances[:n_latents] - noise, 0))
    return LinearModel(mean, weights, np.full(n_numbers, noise))


def factor_analysis(rows: Float64, n_factors: int) -> LinearModel:
    """Return the factor analysis of rows, with a noise variance per number."""
    # Numbers that hardly vary would have a noise of nothing, and certainty without bound.
    least = 1e-3 * rows.var(axis=0).mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = FactorAnalysis(n_factors, max_iter=50, tol=1e-1, random_state=0).fit(rows)
    return LinearModel(
        rows.mean(axis=0), found.components_.T, np.maximum(found.noise_variance_, least)
    )


class _Linear:
    """Predictions of linear models, fitted once for each number of latents."""

    def __init__(self, fit: Callable[[Float64, int], LinearModel]) -> None:
        self._fit = fit
        self._rows: Float64 | None = None
        self._models: dict[int, LinearModel] = {}

    def __call__(self, rows: Float64, row: Float64, choices: Sequence[float]) -> list[Float64]:
        if rows is not self._rows:
            self._rows = rows
            self._models = {int(choice): self._fit(rows, int(choice)) for choice in choices}
        return [self._models[int(choice)].predict(row) for choice in choices]


def ridge_regression(rows: Float64, row: Float64, choices: Sequence[float]) -> list[Float64]:
    """Regress all numbers on those that are seen, by their inner products over images."""
    mean, seen = rows.mean(axis=0), ~np.isnan(row)
    centred = rows - mean
    gram = centred[:, seen] @ centred[:, seen].T
    values, vectors = np.linalg.eigh(gram)
    similarity = vectors.T @ (centred[:, seen] @ (row[seen] - mean[seen]))
    unit = np.trace(gram) / len(rows)
    return [
        mean + (vectors @ (similarity / (np.maximum(values, 0) + choice * unit))) @ centred
        for choice in choices
    ]


def nearest_neighbours(rows: Float64, row: Float64, choices: Sequence[float]) -> list[Float64]:
    """Average the training images that are most alike where the row is seen."""
    seen = ~np.isnan(row)
    order = np.argsort(np.square(rows[:, seen] - row[seen]).sum(axis=1), kind="stable")
    return [rows[order[: int(choice)]].mean(axis=0) for choice in choices]


@dataclass(frozen=True)
class Baseline:
    """A simple method, and what it may choose from."""

    make: Callable[[], Method]
    choices: Sequence[float]


BASELINES: dict[str, Baseline] = {
    "ridge": Baseline(lambda: ridge_regression, PENALTIES),
    "PPCA": Baseline(lambda: _Linear(probabilistic_pca), NUMBERS_OF_LATENTS),
    "KNN": Baseline(lambda: nearest_neighbours, NUMBERS_OF_NEIGHBOURS),
    "factor analysis": Baseline(lambda: _Linear(factor_analysis), NUMBERS_OF_FACTORS),
}


def predictions(baseline: Baseline, split: Split, choices: Sequence[float]) -> list[Array]:
    """Return the predicted test images of a split, for each of some choices."""
    method, rows = baseline.make(), _rows(split.training)
    usable = [choice for choice in choices if choice < len(rows) - 1]
    found = [method(rows, row, usable) for row in _rows(split.observed)]
    images = [np.reshape([row[n] for row in found], split.test.shape) for n in range(len(usable))]
    return images + images[-1:] * (len(choices) - len(usable))


def relative_error(baseline: Baseline, split: Split, seed: int) -> tuple[float, float]:
    """Return the error of a baseline, and what it chose on the training images alone."""
    errors = np.zeros(len(baseline.choices))
    for fold in split.folds(N_FOLDS, seed):
        found = predictions(baseline, fold, baseline.choices)
        errors += [fold.relative_error(images) for images in found]
    choice = baseline.choices[int(np.argmin(errors))]
    return split.relative_error(predictions(baseline, split, [choice])[0]), choice


def _rows(images: Array) -> Float64:
    return np.asarray(images.reshape(len(images), -1), np.float64)
