"""Budgets: what was spent within a year, or ever, decides what may still be spent."""

import pytest

from anamorph.federation import Policy, PolicyError
from anamorph.federation.site.budget import YEAR, Budget, Spending
from anamorph.federation.site.ledger import Ledger

NOW = 1.8e9
COUNTS = {"site1": 5, "site2": 5, "site3": 5}


def spent(kind, n_times, policy=None, *, time=NOW, fit=""):
    return Budget(policy or Policy(), [Spending(time, kind, fit)] * n_times)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("question", "questions_per_year"), ("fit", "fits"), ("analysis", "analyses")],
)
def test_what_is_spent_is_refused_and_names_its_rule(kind, rule):
    policy = Policy(**{rule: 3})
    budget = spent(kind, 2, policy)
    budget.check(kind, NOW)
    assert budget.remaining(kind, NOW) == 1
    budget.spend(Spending(NOW, kind))
    with pytest.raises(PolicyError, match=f"3 .* raise '{rule}' in its policy"):
        budget.check(kind, NOW)
    assert budget.remaining(kind, NOW) == 0


def test_questions_and_refusals_come_back_after_a_year_and_fits_do_not():
    for kind, rule in (("question", "questions_per_year"), ("refusal", "refusals_per_year")):
        budget = spent(kind, 3, Policy(**{rule: 3}))
        with pytest.raises(PolicyError):
            budget.check(kind, NOW + YEAR - 1)
        budget.check(kind, NOW + YEAR + 1)
    budget = spent("fit", 1)
    with pytest.raises(PolicyError, match="1 different fits in all"):
        budget.check("fit", NOW + 10 * YEAR)


def test_after_too_many_refusals_everything_gets_the_same_answer():
    budget = spent("refusal", 3, Policy(refusals_per_year=3))
    texts = set()
    for kind in ("question", "refusal", "fit", "analysis"):
        with pytest.raises(PolicyError) as error:
            budget.check(kind, NOW)
        texts.add(str(error.value))
    assert len(texts) == 1
    assert "answers no more" in texts.pop()


def test_a_clock_set_back_gains_nothing():
    with pytest.raises(PolicyError):
        spent("question", 3, Policy(questions_per_year=3)).check("question", NOW - 2 * YEAR)


def test_a_fit_of_few_iterations_may_ask_few_questions():
    policy = Policy()
    assert policy.most_questions(20) >= 4 + 21 * 20  # the longest honest fit
    most = policy.most_questions(2)
    assert most < policy.most_questions(20) <= policy.questions_per_fit
    budget = spent("question", most, fit="fit1")
    with pytest.raises(PolicyError, match=f"{most} questions of a fit of 2 iterations"):
        budget.check("question", NOW, fit="fit1", n_iterations=2)
    budget.check("question", NOW, fit="fit2", n_iterations=2)
    budget.check("question", NOW)  # an analysis


def test_unknown_kinds_are_errors():
    with pytest.raises(ValueError, match="kind must be one of question, refusal, fit, analysis"):
        Spending(NOW, "nothing")


# ---- beginnings, in the ledger


def ledger_of(folder, policy, clock=lambda: NOW):
    return Ledger(folder / "ledger.jsonl", policy, clock)


def test_a_fit_that_the_budget_does_not_allow_does_not_begin(tmp_path):
    ledger = ledger_of(tmp_path, Policy(minimum_images=1, fits=1))
    ledger.begin("fit1", COUNTS, 5, "plan1")
    ledger.admit("fit1", 1, "moments", tuple(COUNTS), "content")
    with pytest.raises(PolicyError, match="1 different fits in all"):
        ledger.begin("fit2", COUNTS, 5, "plan2")
    ledger.begin("fit1", COUNTS, 5, "plan1")  # it is resumed


@pytest.mark.parametrize("n_iter", [5, None])
def test_names_that_are_never_asked_about_are_few(tmp_path, n_iter):
    # Otherwise whoever joins under ever new names fills the disk of a site, and nothing counts it.
    times = [NOW]
    ledger = ledger_of(tmp_path, Policy(minimum_images=1), lambda: times[0])
    for number in range(20):
        ledger.begin(f"fit{number}", COUNTS, n_iter, f"plan{number}")
    for again in (ledger, ledger_of(tmp_path, Policy(), lambda: times[0])):
        with pytest.raises(PolicyError, match="20 fits and analyses began here"):
            again.begin("fit20", COUNTS, n_iter, "plan20")
    ledger.begin("fit3", COUNTS, n_iter, "plan3")  # known already
    times[0] += 1.1 * YEAR
    ledger.begin("fit20", COUNTS, n_iter, "plan20")


def test_a_fit_does_not_go_back_without_end(tmp_path):
    ledger = ledger_of(tmp_path, Policy(minimum_images=1))
    ledger.begin("fit1", COUNTS, 0, "plan")
    for step in range(1, 101):
        ledger.take_step("fit1", step)
    for again in (ledger, ledger_of(tmp_path, Policy())):
        with pytest.raises(PolicyError, match="gone back in it 100 times"):
            again.take_step("fit1", 101)
