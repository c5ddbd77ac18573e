"""Sums of latents by group: what they are, and for whom they are refused."""

import numpy as np
import pytest

from anamorph.federation import MessageError, Policy, TooFewImagesError
from anamorph.federation.site.group_sums import group_sums

LATENTS = np.random.default_rng(0).normal(size=(6, 2))
COLUMNS = {
    "diagnosis": ["case", "case", "case", "control", "control", "control"],
    "weight": ["1", "2", "1", "1", "1", "2"],
    "rare": ["0", "0", "1", "1e-9", "0", "0"],
    "name": ["a", "b", "c", "d", "e", "f"],
}


def sums(minimum=1, **arguments):
    return group_sums(LATENTS, COLUMNS, arguments, Policy(minimum_images=minimum))


def test_sums_are_weighted_and_by_group():
    found = sums(2, groups=["control", "case"], group_by="diagnosis", weight_by="weight")
    assert found.n_images == 6
    weights, latents = np.array([1.0, 1.0, 2.0]), LATENTS[3:]
    np.testing.assert_array_equal(found["group_size"], [3, 3])
    np.testing.assert_array_equal(found["weight_sum"], [4, 4])
    np.testing.assert_allclose(found["latent_sum"][0], weights @ latents)
    np.testing.assert_allclose(found["latent_scatter"][0], (latents.T * weights) @ latents)


def test_no_group_is_smaller_than_the_policy_says():
    with pytest.raises(TooFewImagesError, match="group 'case' of this site has fewer"):
        sums(4, groups=["case"], group_by="diagnosis")
    with pytest.raises(TooFewImagesError, match="group 'nobody'"):
        sums(1, groups=["nobody"], group_by="diagnosis")


def test_weights_do_not_single_out_an_image():
    assert sums(5, groups=["all"], weight_by="weight").n_images == 6
    with pytest.raises(TooFewImagesError, match="by its weights, group 'all'"):
        sums(2, groups=["all"], weight_by="rare")
    with pytest.raises(TooFewImagesError, match="by its weights, group 'case'"):
        sums(3, groups=["case"], group_by="diagnosis", weight_by="weight")


def test_columns_that_are_not_there_or_hold_no_weights():
    with pytest.raises(MessageError, match=r"no column 'age'; it lends diagnosis, weight"):
        sums(groups=["all"], weight_by="age")
    with pytest.raises(MessageError, match="weights must be numbers"):
        sums(groups=["all"], weight_by="name")
