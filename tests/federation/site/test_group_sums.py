"""Sums of latents by group: what they are, and for whom they are refused."""

import numpy as np
import pytest

from anamorph.federation import MessageError, Policy, PolicyError, TooFewImagesError
from anamorph.federation.site.group_sums import GroupAnswers

LATENTS = np.random.default_rng(0).normal(size=(6, 2))
COLUMNS = {
    "diagnosis": ["case", "case", "case", "control", "control", "control"],
    "weight": ["1", "2", "1", "1", "1", "2"],
    "rare": ["0", "0", "1", "1e-9", "0", "0"],
    "name": ["a", "b", "c", "d", "e", "f"],
}


@pytest.fixture
def sums(tmp_path):
    def ask(minimum=1, **arguments):
        policy = Policy(minimum_images=minimum)
        answers = GroupAnswers(tmp_path / "analyses.jsonl", range(6), COLUMNS, policy)
        return answers.answer(LATENTS, arguments, 3)

    return ask


def test_sums_are_weighted_and_by_group(sums):
    found = sums(2, groups=["control", "case"], group_by="diagnosis", weight_by="weight")
    assert found.n_images == 6
    weights, latents = np.array([1.0, 1.0, 2.0]), LATENTS[3:]
    np.testing.assert_array_equal(found["group_size"], [3, 3])
    np.testing.assert_array_equal(found["weight_sum"], [4, 4])
    np.testing.assert_allclose(found["latent_sum"][0], weights @ latents)
    np.testing.assert_allclose(found["latent_scatter"][0], (latents.T * weights) @ latents)


def test_no_group_is_smaller_than_the_policy_says(sums):
    with pytest.raises(TooFewImagesError, match="group 'case' of this site has fewer"):
        sums(4, groups=["case"], group_by="diagnosis")
    with pytest.raises(TooFewImagesError, match="group 'nobody'"):
        sums(1, groups=["nobody"], group_by="diagnosis")


def test_weights_do_not_single_out_an_image(sums):
    with pytest.raises(TooFewImagesError, match="by its weights, group 'all'"):
        sums(2, groups=["all"], weight_by="rare")
    with pytest.raises(TooFewImagesError, match="by its weights, group 'case'"):
        sums(3, groups=["case"], group_by="diagnosis", weight_by="weight")
    with pytest.raises(TooFewImagesError, match="with all images"):
        sums(3, groups=["all"], weight_by="weight")  # less all images: the two of weight 2
    assert sums(2, groups=["all"], weight_by="weight").n_images == 6


def test_columns_that_are_not_there_or_hold_no_weights(sums):
    with pytest.raises(MessageError, match=r"no column 'age'; it lends diagnosis, weight"):
        sums(groups=["all"], weight_by="age")
    with pytest.raises(MessageError, match="weights must be numbers"):
        sums(groups=["all"], weight_by="name")


def test_a_refused_analysis_is_not_recorded(sums, tmp_path):
    with pytest.raises(TooFewImagesError):
        sums(4, groups=["case"], group_by="diagnosis")
    assert not (tmp_path / "analyses.jsonl").exists()
    sums(3, groups=["case"], group_by="diagnosis")
    assert len((tmp_path / "analyses.jsonl").read_text().splitlines()) == 1


def test_groups_are_different_texts(sums):
    for groups in (["case", "case"], [3]):
        with pytest.raises(MessageError, match="groups must be different texts"):
            sums(groups=groups, group_by="diagnosis")


def test_a_site_may_answer_private_statistics_only(tmp_path):
    policy = Policy(minimum_images=1, exact_statistics=False)
    answers = GroupAnswers(tmp_path / "analyses.jsonl", range(6), COLUMNS, policy)
    with pytest.raises(PolicyError, match="differentially private statistics only"):
        answers.answer(LATENTS, {"groups": ["all"]}, 3)
