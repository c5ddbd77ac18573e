"""Classifying by features: a Gaussian process, linear in groups of features that are weighted.

The latent function is f(x) = c + sum_g w_g'x_g, with c ~ N(0, weight of the constant) and
w_g ~ N(0, weight of group g), and P(y = 1 | f) = Phi(f). What decides, say shape or appearance,
is found by maximising the marginal likelihood of the labels with respect to these weights. This is
Bayesian probit regression; the posterior is approximated by expectation propagation.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

from anamorph.arrays.typing import Float64Array, IntArray
from anamorph.classify.expectation_propagation import Posterior, infer
from anamorph.kernels.threads import one_blas_thread

Columns = slice | Sequence[int] | NDArray[np.integer]

# Weights are looked for where the constant or a group has a variance of f from a millionth (it
# does not matter) to a million (all is certain), averaged over the training points.
_LOG_BOUNDS = (np.log(1e-6), np.log(1e6))


class GaussianProcessClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Two classes told apart by weighted groups of features.

    Parameters
    ----------
    groups : list of slices or of lists of int, optional
        Columns of X that share a weight, e.g. ``[slice(0, 30), slice(30, 100)]`` for 30 latents
        of appearance and 70 of shape. Columns in no group are not used. By default all columns
        are one group.

    Attributes
    ----------
    classes_ : array of shape (2,)
        Labels, sorted; the latent function is positive for the second.
    weights_ : array of shape (n_groups,)
        Prior variance of the coefficients of each group.
    constant_weight_ : float
        Prior variance of the constant.
    log_marginal_likelihood_ : float
        ln p(y | X) at these weights, by expectation propagation.
    posterior_ : Posterior
        Of the latent function at the training points.
    n_features_in_ : int

    Notes
    -----
    Features of a group count as they are scaled: put a StandardScaler before, where their units
    differ. A fit takes some dozens of sweeps over the N training points, O(N^3) each.

    Examples
    --------
    >>> import numpy as np
    >>> latents = np.random.default_rng(0).standard_normal((60, 5))
    >>> is_patient = latents[:, 1] > 0.3
    >>> classifier = GaussianProcessClassifier([slice(0, 3), slice(3, 5)])
    >>> bool(classifier.fit(latents, is_patient).score(latents, is_patient) > 0.9)
    True
    """

    def __init__(self, groups: Sequence[Columns] | None = None) -> None:
        self.groups = groups

    def fit(self, X: ArrayLike, y: ArrayLike) -> GaussianProcessClassifier:  # noqa: N803
        """Find weights and posterior from features X (N, D) and N labels of two classes."""
        features, labels = check_X_y(X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) == 1:
            raise ValueError(f"y must have 2 classes, got one class: all are {self.classes_[0]!s}")
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. y must have 2 classes, got "
                f"{len(self.classes_)}: use OneVsRestClassifier for more"
            )
        self.n_features_in_ = features.shape[1]
        self._columns = _checked_groups(self.groups, self.n_features_in_)
        self._features = features
        kernels = self._kernels(features)
        with one_blas_thread:  # products are many and small
            weights, self.posterior_ = _most_likely_weights(
                kernels, np.where(numbers == 1, 1.0, -1.0)
            )
        self.constant_weight_, self.weights_ = float(weights[0]), weights[1:]
        self.log_marginal_likelihood_ = self.posterior_.log_marginal_likelihood
        return self

    def decision_function(self, X: ArrayLike) -> Float64Array:  # noqa: N803
        """Return the probit of the probability of the second class, (N,)."""
        check_is_fitted(self, "posterior_")
        features = check_array(X, dtype=np.float64)
        if features.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {features.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        weights = np.array([self.constant_weight_, *self.weights_])
        covariances = np.tensordot(weights, self._kernels(features), axes=1)
        variances = self.constant_weight_ + sum(
            weight * np.square(features[:, columns]).sum(axis=1)
            for weight, columns in zip(self.weights_, self._columns, strict=True)
        )
        mean, variance = self.posterior_.predict(covariances, variances)
        return np.asarray(mean / np.sqrt(1 + variance))

    def predict_proba(self, X: ArrayLike) -> Float64Array:  # noqa: N803
        """Return the probabilities of both classes, (N, 2), averaged over the posterior."""
        probit = self.decision_function(X)
        return np.stack([ndtr(-probit), ndtr(probit)], axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the more probable label of each row of features, (N,)."""
        is_second = self.decision_function(X) > 0
        return np.asarray(self.classes_[is_second.astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _kernels(self, features: Float64Array) -> Float64Array:
        """Return covariances with the training points at weights 1, (1 + n_groups, M, N)."""
        constant = np.ones((len(features), len(self._features)))
        products = [
            features[:, columns] @ self._features[:, columns].T for columns in self._columns
        ]
        return np.stack([constant, *products])


def _most_likely_weights(
    kernels: Float64Array, signs: Float64Array
) -> tuple[Float64Array, Posterior]:
    """Maximise ln p(y) over the logarithms of weights of kernels (n, N, N)."""
    sizes = np.trace(kernels, axis1=1, axis2=2) / len(signs)
    units = np.where(sizes > 0, sizes, 1)  # features that are all zero have no size
    kernels = kernels / units[:, None, None]
    latest = infer(kernels.sum(axis=0), signs)

    def loss(log_weights: Float64Array) -> tuple[float, Float64Array]:
        nonlocal latest
        weighted = np.exp(log_weights)[:, None, None] * kernels
        latest = infer(weighted.sum(axis=0), signs, latest.sites)
        return -latest.log_marginal_likelihood, -latest.gradient(weighted)

    found = minimize(
        loss, np.zeros(len(kernels)), jac=True, method="L-BFGS-B", bounds=[_LOG_BOUNDS] * len(units)
    )
    if not found.success:
        warnings.warn(
            f"the weights of the groups may not be the most likely ones: {found.message}",
            ConvergenceWarning,
            stacklevel=3,
        )
    weights = np.exp(found.x)
    posterior = infer(np.tensordot(weights, kernels, axes=1), signs, latest.sites)
    return weights / units, posterior


def _checked_groups(groups: Sequence[Columns] | None, n_features: int) -> list[IntArray]:
    """Return the columns of every group."""
    if groups is None:
        return [np.arange(n_features)]
    if isinstance(groups, slice | str) or len(groups) == 0:
        raise ValueError(f"groups must be a list of slices or of lists of columns, got {groups!r}")
    checked = []
    for group in groups:
        try:
            columns = np.atleast_1d(np.arange(n_features)[group])
        except (IndexError, TypeError):
            raise ValueError(
                f"a group must be a slice or a list of columns of the {n_features} of X, got "
                f"{group!r}"
            ) from None
        if not len(columns):
            raise ValueError(f"a group must have columns, got {group!r} of {n_features} columns")
        checked.append(columns)
    return checked
