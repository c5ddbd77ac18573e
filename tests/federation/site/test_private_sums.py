"""Differentially private statistics: bounded contributions, noise of all sites, a yearly budget."""

import math

import numpy as np
import pytest

from anamorph.federation import MessageError, Policy, PolicyError
from anamorph.federation.protocol.privacy import PrivacyTerms
from anamorph.federation.site import private_sums
from anamorph.federation.site.private_sums import STEPS, noise_variance, private_group_sums

TERMS = PrivacyTerms(1.0, 1e-5, 2.0)
LATENTS = np.random.default_rng(0).normal(size=(30, 3))
LABELS = ["case"] * 10 + ["control"] * 20


@pytest.fixture
def without_noise(monkeypatch):
    monkeypatch.setattr(private_sums, "discrete_gaussian", lambda variance: 0)


def answer(latents=LATENTS, labels=LABELS, groups=("case", "control"), n_sites=3):
    return private_group_sums(latents, labels, groups, TERMS, 4.0, n_sites)


def test_without_noise_sums_are_those_of_clipped_latents(without_noise):
    sums = answer()
    norms = np.linalg.norm(LATENTS, axis=1, keepdims=True)
    clipped = LATENTS / np.maximum(1, norms / 2)
    assert (norms > 2).any()
    np.testing.assert_allclose(sums["group_size"], [10, 20])
    np.testing.assert_allclose(2 * sums["latent_sum"][0], clipped[:10].sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(
        4 * sums["latent_scatter"][1], clipped[10:].T @ clipped[10:], atol=1e-4
    )
    assert sums.n_images == 30  # public, unlike the sizes of groups


def test_no_image_moves_the_answer_by_more_than_the_sensitivity(without_noise):
    far = np.concatenate([1e6 * np.eye(3), -1e6 * np.ones((1, 3)), np.zeros((1, 3))])
    sensitivity = math.sqrt(3) + math.sqrt(1 + 3 + 6) / 2 / STEPS
    for latents in far:
        others = answer(np.concatenate([LATENTS, latents[None]]), [*LABELS, "nobody"])
        with_it = answer(np.concatenate([LATENTS, latents[None]]), [*LABELS, "case"])
        rows, columns = np.tril_indices(3)
        moved = [with_it[name] - others[name] for name in ("group_size", "latent_sum")]
        scatter = with_it["latent_scatter"] - others["latent_scatter"]
        norm = math.sqrt(
            sum(np.square(part).sum() for part in moved)
            + np.square(scatter[:, rows, columns]).sum()
        )
        assert 0.9 < norm <= sensitivity


def test_all_sites_but_one_add_the_whole_noise():
    whole = noise_variance(4.0, 10, 1)
    assert whole >= (4 * math.sqrt(3) * STEPS) ** 2
    for n_sites in (3, 5, 20):
        assert (n_sites - 1) * noise_variance(4.0, 10, n_sites) >= whole


def test_noise_is_as_large_as_it_should_be_and_whole_steps():
    sums = [answer(n_sites=3) for _ in range(40)]
    values = np.stack([one["latent_sum"] for one in sums])
    np.testing.assert_array_equal(values * STEPS, np.rint(values * STEPS))
    deviation = 4 * math.sqrt(3) / math.sqrt(2)
    spread = (values - values.mean(axis=0)).std()
    assert 0.8 * deviation < spread < 1.2 * deviation
    assert not np.array_equal(sums[0]["group_size"], sums[1]["group_size"])
    for one in sums[:3]:
        np.testing.assert_array_equal(one["latent_scatter"], one["latent_scatter"].swapaxes(1, 2))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, "privacy must have epsilon, delta, clip, got 3"),
        ({"epsilon": 1.0}, "privacy must have epsilon, delta, clip"),
        (
            {"epsilon": 0, "delta": 1e-5, "clip": 1.0},
            "epsilon of an analysis must be a number from 0.01",
        ),
        (
            {"epsilon": 1, "delta": 1.0, "clip": 1.0},
            "delta of an analysis must be a number from 1e-12",
        ),
        ({"epsilon": 1, "delta": 1e-5, "clip": math.inf}, "clip of an analysis must be a number"),
        ({"epsilon": 1, "delta": 1e-5, "clip": "2"}, "clip of an analysis must be a number"),
    ],
)
def test_terms_are_checked(given, expected):
    with pytest.raises(MessageError) as error:
        PrivacyTerms.checked(given)
    assert expected in str(error.value)


# ---- the accountant and the budget: the extra "privacy"


@pytest.fixture
def accounting():
    return pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")


def test_noise_is_that_of_the_analytic_gaussian_mechanism(accounting):
    from scipy.stats import norm

    from anamorph.federation.protocol.privacy import composed_epsilon, noise_multiplier

    for epsilon, delta in [(0.5, 1e-6), (4.0, 1e-5)]:
        multiplier = noise_multiplier(epsilon, delta)
        # Balle and Wang (2018), Theorem 8: delta of the Gaussian mechanism.
        exact = norm.cdf(0.5 / multiplier - epsilon * multiplier) - math.exp(epsilon) * norm.cdf(
            -0.5 / multiplier - epsilon * multiplier
        )
        assert exact <= delta
        assert exact > 0.95 * delta
        assert composed_epsilon([multiplier] * 4, delta) < 4 * epsilon


def test_a_budget_of_a_year(accounting, tmp_path):
    from anamorph.federation.site.budget import YEAR
    from anamorph.federation.site.privacy_budget import PrivacyBudget

    now = [1.8e9]
    policy = Policy(epsilon_per_analysis=1.0, epsilon_per_year=2.0, delta=1e-5)
    budget = PrivacyBudget(tmp_path / "analyses.jsonl", policy, lambda: now[0])
    assert budget.spent().epsilon == 0
    for n_analyses in (1, 2, 3):
        budget.spend(TERMS)
        assert budget.spent().n_analyses == n_analyses
    assert 1.5 < budget.spent().epsilon <= 2.0  # less than the sum of three
    assert "epsilon 1." in str(budget.spent())
    again = PrivacyBudget(tmp_path / "analyses.jsonl", policy, lambda: now[0])  # restarted
    with pytest.raises(PolicyError, match=r"privacy loss of a year would be 2\.\d+, and this site"):
        again.spend(TERMS)
    assert again.spent().n_analyses == 3
    now[0] += YEAR + 1
    again.spend(TERMS)
    for wrong in (PrivacyTerms(1.1, 1e-5, 1.0), PrivacyTerms(0.5, 1e-4, 1.0)):
        with pytest.raises(PolicyError, match=r"this site allows (epsilon|delta) \S+ of an"):
            again.spend(wrong)


def test_refusals_of_private_statistics_do_not_depend_on_the_data(accounting, tmp_path):
    from anamorph.federation.site.group_sums import GroupAnswers

    columns = {"diagnosis": LABELS, "weight": ["1"] * 30}
    policy = Policy(exact_statistics=False)
    answers = GroupAnswers(tmp_path / "analyses.jsonl", range(30), columns, policy)
    privacy = {"epsilon": 0.5, "delta": 1e-5, "clip": 2.0}
    asked = {"groups": ["nobody", "case"], "group_by": "diagnosis", "privacy": privacy}
    sums = answers.answer(LATENTS, asked, 3)
    assert sums["group_size"][0] != 0
    with pytest.raises(MessageError, match="private statistics have no weights"):
        answers.answer(LATENTS, asked | {"weight_by": "weight"}, 3)


def test_without_the_library_it_says_what_to_install(monkeypatch):
    from anamorph.federation import FederationError
    from anamorph.federation.protocol.privacy import noise_multiplier

    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(FederationError, match=r"pip install 'anamorph\[privacy\]'"):
        noise_multiplier(1.0, 1e-5)
