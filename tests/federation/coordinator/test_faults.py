"""Sites that fail: the fit gives the numbers it would have given, goes on without, or stops."""

import numpy as np
import pytest

from anamorph.federation import (
    Policy,
    PolicyError,
    RosterError,
    SiteAgent,
    SitesLostError,
    Terms,
    TooFewImagesError,
    federated_fit,
)
from tests.federation.conftest import (
    LENIENT,
    OPEN,
    Unreliable,
    fit,
    model,
    objective_error,
    sites,
)

QUESTIONS = (
    "shape_derivatives",
    "appearance_derivatives",
    "propose_latents",
    "update_latents",
    "mean_derivatives",
)


class Once:
    """A plan: one site fails once, when some question is asked for the second time."""

    def __init__(self, question, fault, site="site2", occurrence=2):
        self.question, self.fault, self.site, self.occurrence = question, fault, site, occurrence
        self.steps, self.has_happened = set(), False

    def __call__(self, name, message):
        if self.has_happened or name != self.site or message.get("question") != self.question:
            return None
        self.steps.add(message["step"])
        self.has_happened = len(self.steps) == self.occurrence
        return self.fault if self.has_happened else None


@pytest.mark.parametrize("fault", ["lost", "unheard"])
@pytest.mark.parametrize(
    "question",
    [
        "update_latents",
        *(pytest.param(name, marks=pytest.mark.slow) for name in QUESTIONS if name[0] != "u"),
    ],
)
def test_a_lost_question_changes_nothing(tmp_path, pooled, question, fault):
    transport = Unreliable(sites(tmp_path), Once(question, fault))
    result, told = fit(transport)
    assert transport.plan.has_happened
    assert told.notes == ()
    assert objective_error(result, pooled) < 1e-5


@pytest.mark.parametrize("question", ["moments", "start_latents", "transform_latents"])
def test_a_lost_question_at_the_start_changes_nothing(tmp_path, pooled, question):
    plan = Once(question, "unheard", occurrence=1)
    result, _ = fit(Unreliable(sites(tmp_path), plan))
    assert plan.has_happened
    assert objective_error(result, pooled) < 1e-5


@pytest.mark.parametrize("question", ["update_latents", "shape_derivatives"])
def test_a_site_that_is_started_again_changes_nothing(tmp_path, pooled, question):
    transport = sites(tmp_path)

    class Restart(Once):
        def __call__(self, name, message):
            fault = super().__call__(name, message)
            if fault is not None:
                old = transport._agents[name]
                transport._agents[name] = SiteAgent(
                    name,
                    old.images,
                    LENIENT,
                    old.folder,
                    old.identity,
                    identities=old._holdings.identities,
                    n_threads=1,
                    secret=b"",
                )
            return fault

    plan = Restart(question, "lost")
    result, _ = fit(Unreliable(transport, plan))
    assert plan.has_happened
    assert objective_error(result, pooled) < 1e-5


def test_a_fit_that_stops_goes_on_by_the_same_call(tmp_path, pooled):
    transport = Unreliable(sites(tmp_path), Once("mean_derivatives", "lost"))
    terms, checkpoint = Terms(patience=0.0, retries=0), tmp_path / "checkpoint"
    with pytest.raises(SitesLostError, match="site2: the answer is lost"):
        fit(transport, terms=terms, checkpoint=checkpoint)
    assert checkpoint.exists()
    assert b"latents\x22:" not in checkpoint.read_bytes()[:4000]  # which stay with the sites
    result, _ = fit(transport, terms=terms, checkpoint=checkpoint)
    assert objective_error(result, pooled) < 1e-5


def test_a_coordinator_that_is_gone_goes_on_by_the_same_call(tmp_path, pooled):
    transport, checkpoint = sites(tmp_path), tmp_path / "checkpoint"

    def die(name, message):
        if message.get("question") == "update_latents" and checkpoint.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(Unreliable(transport, die), checkpoint=checkpoint)
    result, _ = fit(transport, checkpoint=checkpoint)
    assert objective_error(result, pooled) < 1e-5


def test_a_coordinator_that_is_gone_before_its_first_checkpoint_starts_again(tmp_path, pooled):
    transport = sites(tmp_path)

    def die(name, message):
        if message.get("question") == "appearance_derivatives":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(Unreliable(transport, die))
    result, _ = fit(transport)
    assert objective_error(result, pooled) < 1e-5


# ---- without a site


GO_ON = Terms(patience=0.0, retries=1, may_go_on_without=True)


def leaving(transport, site="site4", question="appearance_derivatives", occurrence=2, stay=None):
    """Let a site leave for good at a question, or come back when another is asked `stay` times."""
    leave = Once(question, "lost", site, occurrence)

    def plan(name, message):
        if leave(name, message) is not None:
            unreliable.away.add(site)
            return "lost"
        if stay and site in unreliable.away and message.get("question") == "mean_derivatives":
            stay.pop()
            if not stay:
                unreliable.away.clear()
        return None

    unreliable = Unreliable(transport, plan)
    return unreliable


@pytest.mark.parametrize("question", ["shape_derivatives", "update_latents", "mean_derivatives"])
def test_a_fit_goes_on_without_a_site_and_says_so(tmp_path, question):
    transport = leaving(sites(tmp_path, n_images=17, n_sites=4), question=question, occurrence=3)
    result, told = fit(transport, terms=GO_ON, n_iter=5)
    assert told.roster == ("site1", "site2", "site3")
    assert len(told.notes) == 1
    assert told.notes[0].endswith("on without site4")
    assert result.n_iter_ == 5
    assert result.origin_.n_images == 13
    assert np.isfinite(result.objective_).all()
    rises = np.diff(result.objective_[-3:])
    assert rises.min() > -1e-6 * abs(result.objective_[-1])


def test_a_site_that_leaves_before_the_first_iteration_is_done(tmp_path):
    # Moments were answered for four sites, and are not answered for three of them.
    transport = leaving(sites(tmp_path, n_images=17, n_sites=4), occurrence=1)
    with pytest.raises(SitesLostError, match="site4"):
        fit(transport, terms=GO_ON, n_iter=4)


def test_a_site_that_returns_is_taken_back(tmp_path):
    stay = [1] * 4  # three sites are asked: it returns in the second iteration without it
    transport = leaving(sites(tmp_path, n_images=17, n_sites=4), stay=stay)
    result, told = fit(transport, terms=GO_ON, n_iter=6)
    assert told.roster == ("site1", "site2", "site3", "site4")
    assert [note.split(": ")[1] for note in told.notes] == [
        "on without site4",
        "on with site4 again",
    ]
    assert result.origin_.n_images == 17
    back = int(told.notes[1].split(":")[0].split()[-1])
    after = np.array(result.objective_[back:])
    assert len(after) >= 3
    assert np.diff(after).min() > 0  # of all 17 images


def test_a_fit_that_stopped_goes_on_without_a_site(tmp_path):
    transport = leaving(sites(tmp_path, n_images=17, n_sites=4))
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(SitesLostError, match="site4"):
        fit(transport, terms=Terms(patience=0.0), checkpoint=checkpoint)
    names = transport.inner.names
    again = model(n_iter=4)
    told = federated_fit(again, transport, names, GO_ON, checkpoint=checkpoint)
    assert told.roster == ("site1", "site2", "site3")
    assert told.notes == ("after iteration 1: on without site4",)
    assert again.n_iter_ == 4


def test_sites_that_fail_in_turn_end_the_fit(tmp_path):
    faulty = ["site1", "site2"]

    def plan(name, message):
        return "lost" if message.get("question") == "update_latents" and name in faulty else None

    with pytest.raises(SitesLostError):
        fit(Unreliable(sites(tmp_path, n_images=17, n_sites=4), plan), terms=GO_ON)


def test_two_sites_may_not_go_on_with_masked_sums(tmp_path):
    transport = leaving(sites(tmp_path), site="site3")
    with pytest.raises(SitesLostError, match="site3"):
        fit(transport, terms=GO_ON)


def test_without_leave_a_fit_does_not_go_on_without_a_site(tmp_path):
    transport = leaving(sites(tmp_path, n_images=17, n_sites=4))
    with pytest.raises(SitesLostError, match="site4"):
        fit(transport, terms=Terms(patience=0.0))


def test_sites_refuse_rosters_that_change_too_often(tmp_path):
    policy = Policy(minimum_images=1, roster_changes=0)
    transport = leaving(sites(tmp_path, policy, n_images=17, n_sites=4))
    with pytest.raises(RosterError, match="may change 0 times"):
        fit(transport, terms=GO_ON)


# ---- answers that are wrong


def with_a_short_block(answer):
    return answer | {"block": answer["block"][:-1]}


def with_no_residue(answer):
    block = answer["block"].copy()
    block[5] = 2**61 - 1
    return answer | {"block": block}


def with_another_number(answer):
    block = answer["block"].copy()
    block[5] = 17
    return answer | {"block": block}


def without_a_block(answer):
    return {}


def stale(answer):
    return {"error": "StaleStepError", "text": "this site is at step 3, and was asked step 9"}


WRONG = [with_a_short_block, with_no_residue, with_another_number, without_a_block, stale]


class Blocks:
    """A plan: one site sends wrong blocks of the answers to a question, once or always."""

    def __init__(self, change, site="site3", once=True):
        self.change, self.site, self.once = change, site, once
        self.steps, self.has_happened = set(), False

    def __call__(self, name, message):
        if message.get("question") == "mean_derivatives":
            self.steps.add(message["step"])
        is_one = message["do"] == "block" and message["step"] in self.steps
        if name != self.site or not is_one or (self.once and self.has_happened):
            return None
        self.has_happened = True
        return self.change


@pytest.mark.parametrize("change", WRONG)
def test_one_wrong_answer_changes_nothing(tmp_path, pooled, change):
    transport = Unreliable(sites(tmp_path), Blocks(change))
    result, _ = fit(transport)
    assert transport.plan.has_happened
    assert objective_error(result, pooled) < 1e-5


@pytest.mark.parametrize("change", [with_another_number, stale])
def test_a_site_that_only_answers_wrongly_is_left_out(tmp_path, change):
    plan = Blocks(change, once=False)
    plan.steps = Later()
    terms = Terms(
        is_secure=False, patience=0.0, retries=1, may_go_on_without=True, roster_changes=1
    )
    _, told = fit(Unreliable(sites(tmp_path, OPEN, n_images=17), plan), terms=terms)
    assert told.roster == ("site1", "site2")


class Later(set):
    """Steps after the first, which belongs to the first iteration."""

    def __contains__(self, step):
        return len(self) > 1 and super().__contains__(step)


# ---- refusals


def test_a_refusal_names_the_site_and_the_reason(tmp_path):
    transport = sites(tmp_path)
    transport._agents["site2"].policy = Policy(minimum_images=10)
    with pytest.raises(TooFewImagesError, match="site2 refuses: this site has fewer images"):
        fit(transport)


def test_a_question_that_one_policy_does_not_list_stops_the_fit(tmp_path):
    transport = sites(tmp_path)
    allowed = tuple(name for name in Policy().questions if name != "mean_derivatives")
    transport._agents["site2"].policy = Policy(minimum_images=1, questions=allowed)
    with pytest.raises(PolicyError, match="site2 refuses: question 'mean_derivatives'"):
        fit(transport)


def test_two_sites_are_refused_at_once(tmp_path):
    with pytest.raises(RosterError, match="at least 3 sites, got 2"):
        fit(sites(tmp_path, n_sites=2))


def test_more_components_than_images(tmp_path):
    with pytest.raises(TooFewImagesError, match="13 for 13: fit at most 2 components"):
        fit(sites(tmp_path), n_components=13)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    transport = sites(tmp_path, Policy(minimum_images=1, fits=2))
    fit(transport, checkpoint=tmp_path / "checkpoint", n_iter=1)
    with pytest.raises(ValueError, match="checkpoint of a fit with other images or settings"):
        fit(transport, checkpoint=tmp_path / "checkpoint", n_iter=1, n_components=3)
