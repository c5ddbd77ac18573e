"""Nuisance factors: features without them, learnt from the training data alone."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from anamorph.classify import GaussianProcessClassifier, NuisanceRemover


def sites_and_features(n=90, seed=0):
    """Return features (n, 4), shifted by site and growing with age, then site and age."""
    generator = np.random.default_rng(seed)
    site, age = np.arange(n) % 3, generator.uniform(20, 80, n)
    effects = generator.standard_normal((3, 4)) * 5
    clean = generator.standard_normal((n, 4))
    return np.column_stack([clean + effects[site] + 0.1 * age[:, None], site, age])


def test_what_is_left_is_orthogonal_to_the_factors():
    data = sites_and_features()
    left = NuisanceRemover([4], [5]).fit_transform(data)
    assert left.shape == (90, 4)
    for site in range(3):
        assert np.allclose(left[data[:, 4] == site].mean(axis=0), 0, atol=1e-10)
    assert np.allclose(left.T @ (data[:, 5] - data[:, 5].mean()), 0, atol=1e-8)


def test_it_projects_so_that_removing_again_changes_nothing():
    data = sites_and_features()
    left = NuisanceRemover([-2], [-1]).fit_transform(data)
    again = NuisanceRemover([4], [5]).fit_transform(np.column_stack([left, data[:, 4:]]))
    assert np.allclose(again, left)


def test_new_data_are_treated_by_what_was_learnt():
    data = sites_and_features()
    remover = NuisanceRemover([4], [5]).fit(data[:60])
    whole, single = remover.transform(data[60:]), remover.transform(data[60:61])
    assert np.allclose(whole[:1], single)
    assert np.abs(whole.mean(axis=0)).max() < 1.0  # not exactly zero: they were not learnt from


def test_a_site_that_predicts_labels_no_longer_does():
    data = sites_and_features(75)
    labels = data[:, 4] == 0
    confounded = cross_val_score(GaussianProcessClassifier(), data[:, :4], labels, cv=3)
    remover = NuisanceRemover([4], [5])
    removed = cross_val_score(
        make_pipeline(remover, GaussianProcessClassifier()), data, labels, cv=3
    )
    assert confounded.mean() > 0.85
    assert removed.mean() < 0.72  # two thirds are of the other sites


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "must name at least one column"),
        ({"categories": [4], "quantities": [4]}, "each once"),
        ({"categories": [6]}, "categories must be columns of X, integers below 6, got 6"),
        ({"categories": range(6)}, "got only nuisance factors"),
    ],
)
def test_columns_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        NuisanceRemover(**arguments).fit(sites_and_features())


def test_a_site_that_was_never_seen():
    data = sites_and_features()
    remover = NuisanceRemover([4]).fit(data[data[:, 4] < 2])
    with pytest.raises(ValueError, match="column 4 has the category 2, which was not in the"):
        remover.transform(data)
