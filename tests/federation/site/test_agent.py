"""What a site does with messages that are repeated, lost, wrong or not allowed."""

import errno
from dataclasses import asdict, replace

import numpy as np
import pytest

from anamorph.federation import Policy
from anamorph.federation.masking.pairwise import PairwiseMasks
from anamorph.federation.site.audit import AuditLog
from anamorph.model.parameters import Parameters
from anamorph.model.settings import LatentLayout
from tests import simulated
from tests.federation.conftest import LENIENT, OPEN, one_agent

SETTINGS = replace(
    simulated.random_settings("gaussian", n_components=2),
    n_channels=1,
    layout=LatentLayout.named("joint", 2),
)
ROSTER = ["a", "other0", "other1"]


def parameters(scale=0.1):
    generator = np.random.default_rng(0)
    space = SETTINGS.space
    return {
        "mean": generator.normal(size=(1, *space)).astype(np.float32),
        "appearance_basis": (scale * generator.normal(size=(2, 1, *space))).astype(np.float32),
        "shape_basis": (scale * generator.normal(size=(2, 2, *space))).astype(np.float32),
        "basis_energy": np.eye(2),
        "latent_precision": np.eye(2),
        "noise_precision": np.ones(1),
    }


def moved(*shift, **changes):
    """Return the arguments of a question that moves latents by a shift."""
    move = {"matrix": np.eye(2), "shift": np.array(shift, np.float64), "keeps_warps": False}
    return {"move": move | changes}


class Coordinator:
    """Speaks to one agent as a coordinator would, and for the other sites of the roster."""

    def __init__(self, agent, identities=()):
        self.agent, self.others = agent, identities[1:]
        self.step, self.fit = 0, "fit1"
        self.join()

    def join(self, **changes):
        message = {"do": "join", "fit": self.fit, "settings": asdict(SETTINGS), "n_iter": 5}
        return self.agent.handle(message | changes)

    def restore(self, to=0, step=None, **changes):
        self.step = self.step + 1 if step is None else step
        message = {"do": "restore", "fit": self.fit, "step": self.step, "to": to}
        return self.agent.handle(message | {"may_encode": False} | changes)

    def message(self, question, arguments=None, *, step=None, arrays=None, **changes):
        if step is None:
            self.step += 1
        published = {"version": 1, "warp_version": 0, "arrays": parameters()}
        return {
            "do": "ask",
            "fit": self.fit,
            "step": self.step if step is None else step,
            "attempt": None,
            "question": question,
            "arguments": arguments or {},
            "roster": ROSTER,
            "keep_from": 0,
            "keys": None,
            "exponents": None,
            "parameters": published if arrays is None else published | {"arrays": arrays},
        } | changes

    def ask(self, question, arguments=None, **changes):
        return self.agent.handle(self.message(question, arguments, **changes))

    def ask_masked(self, question, own, arguments=None, *, attempt=0, exponent=40, **changes):
        message = self.message(question, arguments, attempt=attempt)
        roster = changes.get("roster", ROSTER)
        keys = {"a": own}
        for identity in self.others:
            keys[identity.name] = PairwiseMasks(identity, self.fit, self.step, attempt).offer()
        names = ("n_images", "log_likelihood", "count", "total", "squares", "gradient", "hessian")
        names = (*names, "latent_sum", "latent_scatter", "group_size", "weight_sum")
        exponents = dict.fromkeys(names, exponent)
        message |= {"keys": {name: keys[name] for name in roster}, "exponents": exponents}
        return self.agent.handle(message | changes)


def started(folder, policy=OPEN, **options):
    agent, identities = one_agent(folder, policy, **options)
    coordinator = Coordinator(agent, identities)
    coordinator.restore()
    coordinator.ask("start_latents", {"seed": 0})
    return agent, coordinator


def latents_of(agent):
    return agent._fit.cohort.latents.copy()


# ---- steps


def test_a_repeated_question_is_answered_again_and_applied_once(tmp_path):
    agent, coordinator = started(tmp_path)
    shift = moved(0.5, -0.5)
    first = coordinator.ask("mean_derivatives", shift)
    after = latents_of(agent)
    again = coordinator.ask("mean_derivatives", shift, step=coordinator.step)
    np.testing.assert_array_equal(first["block"], again["block"])
    np.testing.assert_array_equal(latents_of(agent), after)


def test_another_question_of_the_same_step_is_refused(tmp_path):
    _, coordinator = started(tmp_path)
    coordinator.ask("mean_derivatives", moved(0, 0))
    reply = coordinator.ask("mean_derivatives", moved(1, 1), step=coordinator.step)
    assert reply["error"] == "StaleStepError"


@pytest.mark.parametrize("offset", [-1, 2])
def test_a_stale_step_and_a_gap_are_refused(tmp_path, offset):
    agent, coordinator = started(tmp_path)
    coordinator.ask("moments")
    before = latents_of(agent)
    reply = coordinator.ask("mean_derivatives", moved(1, 1), step=coordinator.step + offset)
    assert reply["error"] == "StaleStepError"
    assert f"at step {coordinator.step}" in reply["text"]
    np.testing.assert_array_equal(latents_of(agent), before)


def test_latents_go_back_to_a_step_also_after_a_restart(tmp_path):
    agent, coordinator = started(tmp_path)
    shift = moved(1, 1)
    coordinator.ask("mean_derivatives", shift)
    step, kept = coordinator.step, latents_of(agent)
    coordinator.ask("mean_derivatives", shift)
    again, _ = one_agent(tmp_path, OPEN)
    coordinator.agent = again
    assert coordinator.ask("moments")["error"] == "StaleStepError"  # it has not joined
    assert coordinator.join()["step"] == coordinator.step - 1
    assert coordinator.ask("moments")["error"] == "StaleStepError"  # nor does it know where it is
    assert "error" not in coordinator.restore(step)
    np.testing.assert_array_equal(latents_of(again), kept)
    assert "error" not in coordinator.ask("moments")


def test_a_step_that_is_gone_is_not_gone_back_to(tmp_path):
    _, coordinator = started(tmp_path)
    start = coordinator.step
    for _ in range(3):
        coordinator.ask("mean_derivatives", moved(1, 1), keep_from=coordinator.step)
    assert "no latents of step" in coordinator.restore(start)["text"]
    reply = coordinator.restore(start, step=1)
    assert reply["error"] == "StaleStepError"


def test_a_site_without_latents_finds_them_by_encoding(tmp_path):
    agent, coordinator = started(tmp_path)
    assert "error" not in coordinator.restore(1, may_encode=True)  # before any latents
    reply = coordinator.ask("propose_latents")
    assert "error" not in reply
    assert np.abs(latents_of(agent)).max() > 0


def test_a_site_that_was_away_does_not_use_latents_of_before(tmp_path):
    agent, coordinator = started(tmp_path)
    coordinator.ask("mean_derivatives", moved(1, 1))
    old, away = latents_of(agent), coordinator.step + 10
    coordinator.step += 20
    assert "no latents of step" in coordinator.restore(away)["text"]
    assert "error" not in coordinator.restore(away, may_encode=True)
    coordinator.ask("propose_latents")
    found = latents_of(agent)
    assert np.abs(found - old).max() > 0.1
    step = coordinator.step
    coordinator.ask("mean_derivatives", moved(1, 1))
    coordinator.restore(step)
    np.testing.assert_array_equal(latents_of(agent), found)
    assert "no latents of step" in coordinator.restore(away)["text"]


def test_blocks_are_of_the_last_answer_only(tmp_path):
    _, coordinator = started(tmp_path)
    reply = coordinator.ask("moments")
    fetch = {"do": "block", "fit": "fit1", "step": coordinator.step, "attempt": None, "index": 0}
    np.testing.assert_array_equal(coordinator.agent.handle(fetch)["block"], reply["block"])
    assert coordinator.agent.handle(fetch | {"index": 1})["error"] == "MessageError"
    assert coordinator.agent.handle(fetch | {"step": 1})["error"] == "StaleStepError"


def test_a_full_disk_leaves_latents_as_they_were(tmp_path, monkeypatch):
    agent, coordinator = started(tmp_path)
    step, kept = coordinator.step, latents_of(agent)
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr("anamorph.federation.site.latent_store.write_tensors", fail)
        reply = coordinator.ask("mean_derivatives", moved(1, 1))
        assert reply["error"] == "StorageError"
        assert "No space left" in reply["text"]
    assert coordinator.ask("moments")["error"] == "StaleStepError"
    coordinator.restore(step)
    np.testing.assert_array_equal(latents_of(agent), kept)


def test_without_an_audit_log_nothing_is_answered(tmp_path, monkeypatch):
    _, coordinator = started(tmp_path)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("anamorph.federation.site.append_only.os.write", fail)
    reply = coordinator.ask("moments")
    assert reply.keys() == {"error", "text"}
    assert "audit log" in reply["text"]


# ---- messages that are wrong


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"question": "digest"}, "there is no question 'digest'"),
        ({"question": "restore"}, "there is no question 'restore'"),
        ({"question": "moments", "arguments": {"latents": 1}}, "moments takes no latents"),
        ({"question": "update_latents", "arguments": moved(1, 1)}, "update_latents takes no move"),
        ({"question": "transform_latents", "arguments": {}}, "move of transform_latents must be"),
        ({"arguments": {"move": np.zeros(2)}}, "must have matrix, shift, keeps_warps"),
        ({"arguments": {"move": {"shift": np.zeros(2)}}}, "must have matrix, shift, keeps_warps"),
        ({"arguments": moved(0, 0, 0)}, r"shape (2,), got (3,)"),
        ({"arguments": moved(np.nan, 0)}, "must be finite"),
        ({"arguments": moved(0, 0, matrix=np.eye(3))}, "shape (2, 2), got (3, 3)"),
        ({"arguments": moved(0, 0, shift=[0.0, 0.0])}, "shape (2,), got [0.0, 0.0]"),
        ({"arguments": moved(0, 0, shift=None)}, "shape (2,), got None"),
        ({"arguments": moved(0, 0, keeps_warps=1)}, "keeps_warps of mean_derivatives must be bool"),
    ],
)
def test_wrong_questions_are_refused(tmp_path, changes, text):
    _, coordinator = started(tmp_path)
    reply = coordinator.agent.handle(coordinator.message("mean_derivatives") | changes)
    assert reply["error"] == "MessageError"
    assert text in reply["text"]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        ({"mean": np.zeros((2, 12, 10), np.float32)}, "mean must have shape (1, 12, 10)"),
        ({"mean": np.full((1, 12, 10), np.nan, np.float32)}, "mean must be finite"),
        ({"images": np.zeros(3)}, "parameters have no 'images'"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path, array, text):
    _, coordinator = started(tmp_path)
    reply = coordinator.ask("propose_latents", arrays=parameters() | array)
    assert reply["error"] == "MessageError"
    assert text in reply["text"]


def test_messages_without_what_they_need_are_refused(tmp_path):
    agent, _ = one_agent(tmp_path)
    assert agent.handle({})["error"] == "MessageError"
    assert agent.handle({"do": "join"}) == {
        "error": "MessageError",
        "text": "the message has no 'fit'",
    }
    assert agent.handle({"do": "ask", "fit": "x"})["error"] == "StaleStepError"


def test_other_images_than_the_fit_is_about_are_refused(tmp_path):
    agent, _ = one_agent(tmp_path, images=np.zeros((7, 9, 9)) + np.arange(9))
    reply = Coordinator(agent).join()
    assert "images here are gaussian, (9, 9)" in reply["text"]


def test_what_fails_for_reasons_of_the_site_stays_there(tmp_path, monkeypatch):
    agent, coordinator = started(tmp_path)

    def fail(**_):
        raise ValueError("patient 1234 in /private/folder")

    monkeypatch.setattr(agent._fit.cohort, "moments", fail)
    reply = coordinator.ask("moments")
    assert reply == {"error": "SiteFailure", "text": "the log of this site says why"}


# ---- policy


def test_too_few_images(tmp_path):
    agent, _ = one_agent(tmp_path, Policy(minimum_images=8))
    for message in ({"do": "describe"}, {"do": "join", "fit": "f", "settings": asdict(SETTINGS)}):
        reply = agent.handle(message | {"n_iter": 1})
        assert reply["error"] == "TooFewImagesError"
        assert "7" not in reply["text"]  # how many there are is not told either


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"components": 1}, "at most 1 components, got 2"),
        ({"iterations": 4}, "at most 4 iterations"),
        ({"voxels": 119}, "at most 119 voxels"),
    ],
)
def test_too_large_models_and_too_long_fits(tmp_path, rules, text):
    agent, _ = one_agent(tmp_path, replace(LENIENT, **rules))
    reply = Coordinator(agent).join()
    assert reply["error"] == "PolicyError"
    assert text in reply["text"]


def test_iterations_are_counted_at_the_site(tmp_path):
    agent, coordinator = started(tmp_path, replace(OPEN, iterations=5))
    for n in range(6):
        coordinator.ask("propose_latents")
        reply = coordinator.ask("update_latents")
        assert ("error" in reply) == (n == 5)
    assert reply["error"] == "PolicyError"
    assert agent._fit.cohort.latents is not None


def test_a_question_that_is_not_listed(tmp_path):
    _, coordinator = started(tmp_path, replace(OPEN, questions=("start_latents",)))
    reply = coordinator.ask("moments")
    assert reply["error"] == "PolicyError"
    assert "question 'moments' is not answered here; answered are start_latents" in reply["text"]


def test_another_fit_needs_leave(tmp_path):
    agent, _ = started(tmp_path)
    again, _ = one_agent(tmp_path, OPEN)  # which remembers
    for one in (agent, again):
        coordinator = Coordinator(one)
        coordinator.join(fit="fit2")
        coordinator.restore(fit="fit2", step=one._ledger.last_step("fit2") + 1)
        reply = coordinator.ask("moments", fit="fit2")
        assert reply["error"] == "PolicyError"
        assert "takes part in 1 fits" in reply["text"]


def test_unmasked_sums_are_refused_unless_allowed(tmp_path):
    agent, identities = one_agent(tmp_path, LENIENT)
    coordinator = Coordinator(agent, identities)
    coordinator.restore()
    reply = coordinator.ask("moments")
    assert reply["error"] == "PolicyError"
    assert "only masked sums" in reply["text"]
    fetch = {"do": "block", "fit": "fit1", "step": coordinator.step, "attempt": None, "index": 0}
    assert "error" in agent.handle(fetch)


# ---- masks


def masked_site(folder, policy=LENIENT, n_others=2):
    agent, identities = one_agent(folder, policy, n_others=n_others)
    coordinator = Coordinator(agent, identities)
    return agent, coordinator, coordinator.restore()["next_key"]


def test_fewer_than_three_sites_are_refused(tmp_path):
    _, coordinator, key = masked_site(tmp_path)
    reply = coordinator.ask_masked("moments", key, roster=["a", "other0"])
    assert reply["error"] == "RosterError"
    assert "at least 3 sites" in reply["text"]
    reply = coordinator.ask_masked("moments", key, roster=["a", "a", "other0"])
    assert reply["error"] == "RosterError"
    reply = coordinator.ask_masked("moments", key, roster=["other0", "other1"])
    assert reply["error"] == "RosterError"


def test_one_roster_for_each_step_and_question(tmp_path):
    _, coordinator, key = masked_site(tmp_path, n_others=3)
    full = ["a", "other0", "other1", "other2"]
    first = coordinator.ask_masked("moments", key, roster=full)
    assert "error" not in first
    keys = {"do": "keys", "fit": "fit1", "step": coordinator.step, "attempt": 1}
    fresh = coordinator.agent.handle(keys)["next_key"]
    coordinator.step -= 1
    reply = coordinator.ask_masked("moments", fresh, attempt=1, roster=full[:3])
    assert reply["error"] == "RosterError"
    assert "was answered for a, other0, other1, other2" in reply["text"]


def test_the_roster_rule_is_about_content_and_survives_a_restart(tmp_path):
    _, coordinator, key = masked_site(tmp_path, n_others=3)
    full = ["a", "other0", "other1", "other2"]
    assert "error" not in coordinator.ask_masked("moments", key, roster=full)
    # Under another step number, from the beginning, by an agent that was started again.
    agent, identities = one_agent(tmp_path, LENIENT, n_others=3)
    coordinator.agent, coordinator.others = agent, identities[1:]
    coordinator.join()
    key = coordinator.restore()["next_key"]
    reply = coordinator.ask_masked("moments", key, roster=full[:3])
    assert reply["error"] == "RosterError"
    coordinator.step -= 1
    assert coordinator.ask_masked("moments", key, roster=full)["n_blocks"] == 1


def test_the_roster_changes_as_often_as_the_policy_says(tmp_path):
    _, coordinator, key = masked_site(tmp_path, replace(LENIENT, roster_changes=1), n_others=3)
    full = ["a", "other0", "other1", "other2"]
    reply = coordinator.ask_masked("start_latents", key, {"seed": 0}, roster=full)
    rosters = [full, full[:3], full[:3], full]
    for n, roster in enumerate(rosters):
        shift = moved(0.1, 0.1)
        reply = coordinator.ask_masked("mean_derivatives", reply["next_key"], shift, roster=roster)
        assert ("error" in reply) == (n == 3)
    assert reply["error"] == "RosterError"
    assert "may change 1 times" in reply["text"]


def test_a_roster_that_changes_along_with_the_parameters_counts_as_a_change(tmp_path):
    # Nearly the same question is another one: only the cap on changes keeps totals apart.
    _, coordinator, key = masked_site(tmp_path, n_others=4)
    full = ["a", "other0", "other1", "other2", "other3"]
    reply = coordinator.ask_masked("start_latents", key, {"seed": 0}, roster=full)
    most = Policy().roster_changes
    for n, roster in enumerate([full, full[:4], full[:3], full]):
        arrays = parameters()
        arrays["mean"] += np.float32(1e-5 * n)
        published = {"version": n + 2, "warp_version": 0, "arrays": arrays}
        reply = coordinator.ask_masked(
            "appearance_derivatives", reply["next_key"], roster=roster, parameters=published
        )
        assert ("error" in reply) == (n > most)
    assert reply["error"] == "RosterError"
    assert f"may change {most} times" in reply["text"]


def test_an_analysis_by_another_name_has_the_same_roster(tmp_path):
    # A coordinator may call an analysis what it likes; answers are about the same images.
    _, coordinator, key = masked_site(tmp_path, replace(LENIENT, roster_changes=0), n_others=3)
    full = ["a", "other0", "other1", "other2"]
    about = {"groups": ["all"], "group_by": None, "weight_by": None}
    assert "error" not in coordinator.ask_masked("statistics", key, about, roster=full)
    coordinator.fit = "another"
    coordinator.join()
    key = coordinator.restore()["next_key"]
    reply = coordinator.ask_masked("statistics", key, about, roster=full[:3])
    assert reply["error"] == "RosterError"
    assert "is not answered for a, other0, other1" in reply["text"]
    coordinator.step -= 1
    others = about | {"groups": ["everyone"]}
    reply = coordinator.ask_masked("statistics", key, others, roster=full[:3])
    assert reply["error"] == "RosterError"
    assert "may change 0 times" in reply["text"]


def test_overflow_is_a_named_error_and_fresh_keys_answer(tmp_path):
    _, coordinator, key = masked_site(tmp_path)
    reply = coordinator.ask_masked("moments", key, exponent=2)
    assert reply["error"] == "SumOverflowError"
    step = coordinator.step
    fresh = coordinator.agent.handle({"do": "keys", "fit": "fit1", "step": step, "attempt": 1})
    coordinator.step -= 1
    again = coordinator.ask_masked("moments", fresh["next_key"], attempt=1)
    assert again["n_blocks"] == 1


def test_a_key_is_not_used_for_two_answers(tmp_path):
    _, coordinator, key = masked_site(tmp_path)
    assert "error" not in coordinator.ask_masked("moments", key)
    coordinator.step -= 1
    reply = coordinator.ask_masked("moments", key, exponent=41)
    assert reply["error"] == "StaleStepError"
    assert "no key was offered" in reply["text"]


def test_a_foreign_key_is_refused(tmp_path):
    agent, _ = one_agent(tmp_path, LENIENT)
    _, strangers = one_agent(tmp_path / "elsewhere", LENIENT)
    coordinator = Coordinator(agent, strangers)
    key = coordinator.restore()["next_key"]
    assert coordinator.ask_masked("moments", key)["error"] == "SignatureError"


def test_nan_does_not_leave_a_site(tmp_path, monkeypatch):
    agent, coordinator, key = masked_site(tmp_path)
    cohort = agent._fit.cohort
    answer = cohort.moments()
    answer["total"][0, 3, 3] = np.nan
    monkeypatch.setattr(cohort, "moments", lambda: answer)
    reply = coordinator.ask_masked("moments", key)
    assert reply["error"] == "AnswerError"
    assert "total is not finite" in reply["text"]


# ---- the audit log


def test_the_audit_log_has_a_line_for_everything(tmp_path):
    agent, coordinator = started(tmp_path)
    coordinator.ask("moments")
    coordinator.ask("nothing")
    lines = list(agent.audit.read())
    assert [line["event"] for line in lines] == [
        "joined",
        "restored",
        "answered",
        "answered",
        "refused",
    ]
    answered = lines[3]
    assert answered["question"] == "moments"
    assert answered["fields"] == {"count": [1, 12, 10], "total": [1, 12, 10], "squares": [1]}
    assert answered["n_images"] == 7
    assert answered["bytes"] == 8 * (1 + 240 + 1)
    assert answered["roster"] == ROSTER
    assert not answered["masked"]
    assert lines[4]["error"] == "MessageError"
    before = agent.audit.path.read_bytes()
    again = AuditLog(agent.audit.path)
    again.write(event="more")
    assert agent.audit.path.read_bytes().startswith(before)
    assert agent.audit.path.stat().st_mode & 0o077 == 0


def test_parameters_arrive_in_blocks(tmp_path):
    agent, coordinator = started(tmp_path)
    arrays = parameters()
    basis = arrays.pop("shape_basis").reshape(-1)
    block = {"do": "publish", "fit": "fit1", "array": "shape_basis"}
    assert agent.handle(block | {"start": 0, "values": basis[:300]}) == {}
    early = coordinator.message("propose_latents", arrays=arrays)
    assert agent.handle(early)["error"] == "StaleStepError"  # not complete
    assert agent.handle(block | {"start": 301, "values": basis[301:]})["error"] == "StaleStepError"
    more = np.concatenate([basis[300:], basis])
    assert agent.handle(block | {"start": 300, "values": more})["error"] == "MessageError"
    assert agent.handle(block | {"start": 300, "values": basis[300:]}) == {}
    assert "error" not in agent.handle(early)
    published = agent._fit.published.parameters()
    assert isinstance(published, Parameters)
    np.testing.assert_array_equal(published.shape_basis.reshape(-1), basis)
