"""Groups that were answered: no combination of them singles out a few images."""

import itertools

import numpy as np
import pytest

from anamorph.federation import Policy, TooFewImagesError
from anamorph.federation.site.answered_groups import AnsweredGroups, smallest_effective_number

N = 40


def rows(*members):
    """Return the weights of groups, given the numbers of their members."""
    weights = np.zeros((len(members), N))
    for weight, chosen in zip(weights, members, strict=True):
        weight[list(chosen)] = 1
    return weights


def effective(weights):
    return np.abs(weights).sum() ** 2 / np.square(weights).sum()


def groups(tmp_path, n_images=N, minimum=10, first=0):
    names = range(first, first + n_images)
    return AnsweredGroups(tmp_path / "analyses.jsonl", names, Policy(minimum_images=minimum))


def test_the_smallest_number_is_that_of_the_best_combination():
    everybody, most = np.ones(N), np.r_[np.ones(N - 1), 0]
    assert smallest_effective_number(np.stack([everybody])) == pytest.approx(N)
    assert smallest_effective_number(np.stack([everybody, most])) == pytest.approx(1)
    halves = rows(range(N), range(20))
    assert smallest_effective_number(halves) == pytest.approx(20)
    # Three sums of which no two, but all together single out two images.
    three = rows(range(N), range(19), range(19, 38))
    assert smallest_effective_number(three) == pytest.approx(2)


def test_no_combination_found_by_chance_is_smaller():
    generator = np.random.default_rng(0)
    for _ in range(2):
        weights = np.concatenate([np.ones((1, 15)), generator.integers(0, 4, (2, 15))])
        smallest = smallest_effective_number(weights)
        found = [effective(a @ weights) for a in generator.normal(size=(2000, 3))]
        vertices = []
        for pair in itertools.combinations(range(15), 2):
            null = np.linalg.svd(weights[:, pair].T)[2][-1] @ weights
            null[np.abs(null) < 1e-9] = 0
            vertices.append(effective(null) if null.any() else np.inf)
        assert smallest == pytest.approx(min(vertices))
        assert min(found) >= smallest - 1e-6


def test_crossed_groups_are_answered_though_their_cells_are_small(tmp_path):
    # Sums over cases and over women do not tell the sum over women that are cases.
    record = groups(tmp_path)
    cases, women = rows(range(20)), rows([*range(5), *range(20, 35)])
    for shares in (cases, women):
        record.check(shares)
        record.record(shares)


def test_all_less_control_does_not_give_the_one_other_patient(tmp_path):
    # What an attack found: nothing but the size of the group itself was checked.
    record = groups(tmp_path)
    with pytest.raises(TooFewImagesError, match="with all images and with the groups answered"):
        record.check(rows(range(N - 1)))
    with pytest.raises(TooFewImagesError):
        record.check(rows(range(N), range(N - 1)))
    record.check(rows(range(N)))  # a site where all are controls
    record.check(rows(range(N - 10)))


def test_groups_of_different_days_are_put_together(tmp_path):
    first = groups(tmp_path)
    first.check(rows(range(20)))
    first.record(rows(range(20)))
    restarted = groups(tmp_path)
    restarted.check(rows(range(20)))  # the same once more tells nothing new
    restarted.check(rows(range(20, 40)))  # nor does the complement
    for other in (
        range(19),
        range(21),
        [*range(19), 30],
        range(21, 40),
        [*range(15), *range(20, 24)],
    ):
        with pytest.raises(TooFewImagesError):
            restarted.check(rows(other))
    restarted.check(rows([*range(10), *range(20, 30)]))


def test_an_image_that_came_between_two_analyses_is_not_singled_out(tmp_path):
    record = groups(tmp_path)
    record.record(np.ones((1, N)))
    later = groups(tmp_path, N + 1)
    with pytest.raises(TooFewImagesError):
        later.check(np.ones((1, N + 1)))
    groups(tmp_path, N + 10).check(np.ones((1, N + 10)))


def test_weights_that_differ_in_one_image_are_refused(tmp_path):
    record = groups(tmp_path)
    weights = np.ones((1, N))
    weights[0, 3] = 5
    with pytest.raises(TooFewImagesError):
        record.check(weights)
    record.check(np.arange(1.0, N + 1)[None])  # ages, say: a combination vanishes in one image
    record.record(np.arange(1.0, N + 1)[None])
    record.check(np.arange(1.0, N + 1)[None])
    for change in (1e-3, 1e-7, 1e-10):
        again = np.arange(1.0, N + 1)[None]
        again[0, 7] += change
        with pytest.raises(TooFewImagesError):
            record.check(again)


def test_too_many_combinations_to_try_are_refused(tmp_path):
    generator = np.random.default_rng(0)
    assert smallest_effective_number(generator.uniform(1, 2, (6, N))) == 0
    with pytest.raises(TooFewImagesError):
        groups(tmp_path, minimum=1).check(generator.uniform(1, 2, (6, N)))
