"""The Gaussian-process classifier: weights, probabilities, and scikit-learn's habits."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessClassifier as LaplaceClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from anamorph.classify import GaussianProcessClassifier


def problem(n=50, noise=0.5, seed=0):
    """Return features (n, 6) whose first two columns decide, and labels."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((n, 6))
    latent = 2 * features[:, 0] - features[:, 1] + 0.5 + noise * generator.standard_normal(n)
    return features, np.where(latent > 0, "patient", "control")


@pytest.mark.slow
def test_it_follows_the_conventions_of_scikit_learn():
    check_estimator(GaussianProcessClassifier(), on_skip=None)


def test_decisions_and_probabilities_are_near_those_of_laplace_at_the_same_weights():
    features, labels = problem(noise=2.0)
    ours = GaussianProcessClassifier().fit(features, labels)
    kernel = ConstantKernel(ours.weights_[0]) * DotProduct(
        np.sqrt(ours.constant_weight_ / ours.weights_[0])
    )
    # Theirs has the logistic likelihood, whose latent function is 1.7 times as large.
    theirs = LaplaceClassifier(1.7**2 * kernel, optimizer=None).fit(features, labels)
    new, _ = problem(200, seed=1)
    probability, other = ours.predict_proba(new)[:, 1], theirs.predict_proba(new)[:, 1]
    assert np.corrcoef(np.argsort(np.argsort([probability, other])))[0, 1] > 0.995
    assert np.abs(probability - other).max() < 0.05  # Laplace is known to be too cautious
    assert (ours.predict(new) == theirs.predict(new)).mean() > 0.98


def test_a_group_that_does_not_matter_loses_its_weight():
    features, labels = problem(100)
    found = GaussianProcessClassifier([slice(0, 2), [2, 3, 4, 5]]).fit(features, labels)
    assert found.weights_[1] < 1e-2 * found.weights_[0]
    assert found.log_marginal_likelihood_ > (
        GaussianProcessClassifier().fit(features, labels).log_marginal_likelihood_
    )


def test_the_weights_are_a_maximum():
    features, labels = problem(60, noise=2.0)
    groups = [slice(0, 1), slice(1, 2)]
    found = GaussianProcessClassifier(groups).fit(features, labels)
    kernels = found._kernels(features)
    weights = np.array([found.constant_weight_, *found.weights_])
    gradient = found.posterior_.gradient(weights[:, None, None] * kernels)
    assert np.abs(gradient).max() < 1e-3


def test_the_scale_of_a_group_does_not_matter():
    features, labels = problem()
    scaled = features * np.array([1, 1, 1e4, 1e4, 1e-4, 1e-4])
    groups = [slice(0, 2), slice(2, 4), slice(4, 6)]
    one = GaussianProcessClassifier(groups).fit(features, labels)
    other = GaussianProcessClassifier(groups).fit(scaled, labels)
    assert np.allclose(one.predict_proba(features), other.predict_proba(scaled), atol=1e-4)


def test_the_order_of_the_data_does_not_matter():
    features, labels = problem()
    order = np.random.default_rng(2).permutation(len(labels))
    one = GaussianProcessClassifier().fit(features, labels)
    other = GaussianProcessClassifier().fit(features[order], labels[order])
    assert np.allclose(one.predict_proba(features), other.predict_proba(features), atol=1e-4)


def test_exchanged_labels_exchange_probabilities():
    features, labels = problem()
    one = GaussianProcessClassifier().fit(features, labels == "patient")
    other = GaussianProcessClassifier().fit(features, labels != "patient")
    assert np.allclose(
        one.predict_proba(features), other.predict_proba(features)[:, ::-1], atol=1e-5
    )


def test_separable_data_are_classified_without_a_fault():
    features, labels = problem(noise=0.0)
    found = GaussianProcessClassifier([slice(0, 3), slice(3, 6)]).fit(features, labels)
    assert found.score(features, labels) == 1
    assert np.isfinite(found.decision_function(1e6 * features)).all()


def test_features_without_information_have_no_effect():
    features, labels = problem()
    padded = np.column_stack([features, np.zeros((len(features), 2))])
    one = GaussianProcessClassifier([slice(0, 6)]).fit(features, labels)
    other = GaussianProcessClassifier([slice(0, 6), slice(6, 8)]).fit(padded, labels)
    assert np.allclose(one.predict_proba(features), other.predict_proba(padded), atol=1e-4)


def test_it_goes_into_pipelines_and_cross_validation():
    features, labels = problem()
    classifier = GaussianProcessClassifier([slice(0, 2), slice(2, 6)])
    assert clone(classifier).groups == classifier.groups
    scores = cross_val_score(make_pipeline(StandardScaler(), classifier), features, labels, cv=4)
    assert scores.mean() > 0.8
    assert cross_val_score(classifier, features, labels, cv=4, scoring="roc_auc").mean() > 0.9


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "groups must be a list"),
        (slice(0, 2), "groups must be a list"),
        ([[0, 6]], "a group must be a slice or a list of columns of the 6 of X"),
        ([slice(6, 9)], "a group must have columns"),
    ],
)
def test_groups_that_are_none(groups, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessClassifier(groups).fit(*problem(10))


def test_other_than_two_classes():
    features, _ = problem(9)
    with pytest.raises(ValueError, match="y must have 2 classes, got 3"):
        GaussianProcessClassifier().fit(features, np.arange(9) % 3)
    with pytest.raises(ValueError, match="got one class: all are 4"):
        GaussianProcessClassifier().fit(features, np.full(9, 4))
