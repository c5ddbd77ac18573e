"""Making features orthogonal to what should not decide, such as the site of a scanner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from anamorph.arrays.typing import Float64Array


class NuisanceRemover(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtract from features what nuisance factors predict of them, by least squares.

    The factors travel as columns of X, so that pipelines and cross-validation split them together
    with the features; what they predict is learnt from the training data alone. Put them last, and
    the features keep their column numbers.

    Parameters
    ----------
    categories : sequence of int
        Columns of X that hold categories as numbers, e.g. sites 0, 1, 2.
    quantities : sequence of int
        Columns of X that hold quantities, e.g. ages.

    Attributes
    ----------
    levels_ : list of array
        The values of each of the `categories` in the training data.
    effects_ : array of shape (n_effects, n_features)
        What the constant, each level and each quantity predict.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from anamorph.classify import GaussianProcessClassifier
    >>> both = make_pipeline(NuisanceRemover([-1]), GaussianProcessClassifier())
    >>> both.fit(np.column_stack([latents, site]), is_patient)  # doctest: +SKIP
    """

    def __init__(self, categories: Sequence[int] = (), quantities: Sequence[int] = ()) -> None:
        self.categories = categories
        self.quantities = quantities

    def fit(self, X: ArrayLike, y: object = None) -> NuisanceRemover:  # noqa: N803
        """Learn what the factors predict, from X (N, features and factors)."""
        values = check_array(X, dtype=np.float64)
        self.n_features_in_ = values.shape[1]
        self._categories = self._checked_columns("categories")
        self._quantities = self._checked_columns("quantities")
        nuisance = [*self._categories, *self._quantities]
        if not nuisance or len(set(nuisance)) < len(nuisance):
            raise ValueError(
                "categories and quantities must name at least one column of X, and each once, got "
                f"{self.categories!r} and {self.quantities!r}"
            )
        self._features = np.setdiff1d(np.arange(self.n_features_in_), nuisance)
        if not len(self._features):
            raise ValueError("X must have columns that are features, got only nuisance factors")
        self.levels_ = [np.unique(values[:, column]) for column in self._categories]
        self._centre = values[:, self._quantities].mean(axis=0)
        self.effects_ = np.linalg.lstsq(
            self._design(values), values[:, self._features], rcond=None
        )[0]
        return self

    def transform(self, X: ArrayLike) -> Float64Array:  # noqa: N803
        """Return features without what the factors predict, (N, n_features)."""
        check_is_fitted(self, "effects_")
        values = check_array(X, dtype=np.float64)
        if values.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {values.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return np.asarray(values[:, self._features] - self._design(values) @ self.effects_)

    def _design(self, values: Float64Array) -> Float64Array:
        """Return the constant, an indicator of each level, and the quantities, centred."""
        indicators = []
        for column, levels in zip(self._categories, self.levels_, strict=True):
            unknown = np.setdiff1d(values[:, column], levels)
            if len(unknown):
                raise ValueError(
                    f"column {column} has the category {unknown[0]:g}, which was not in the "
                    "training data: stratify folds by it, or leave it out"
                )
            indicators.append(values[:, column, None] == levels)
        quantities = values[:, self._quantities] - self._centre
        return np.column_stack([np.ones(len(values)), *indicators, quantities])

    def _checked_columns(self, name: str) -> list[int]:
        count = self.n_features_in_
        columns = list(getattr(self, name))
        for column in columns:
            is_column = isinstance(column, int | np.integer) and -count <= column < count
            if not is_column:
                raise ValueError(
                    f"{name} must be columns of X, integers below {count}, got {column!r}"
                )
        return [int(column) % count for column in columns]
