"""Finding 1 in real processes: a server whose program cheats, against unmodified sites."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from anamorph.federation.nvflare import hardening
from anamorph.federation.nvflare.job import Job, Watch
from anamorph.federation.nvflare.processes import end_coordinator, start_coordinator
from anamorph.federation.nvflare.session import Session
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.site.audit_chain import check_chain
from anamorph.federation.site.budget import Budget
from anamorph.federation.site.ledger import Ledger
from anamorph.federation.site.policy import Policy
from anamorph.latents import starting_latents
from tests.federation.nvflare.hospitals import PATIENCE, SIZES, wait_until

pytestmark = pytest.mark.slow

PROGRAM = "tests.federation.nvflare.cheating_program.CheatingProgram"
FIRST_SEED = 100
POLICY = """\
minimum_images = 4
weighted_sums_per_image = 1e6
"""


def n_fits(kit) -> int:
    """Return how many fits a site has taken part in."""
    path = kit.work / "ledger.jsonl"
    budget: Budget = Ledger(path, Policy())._budget
    return budget.count("fit", time.time())


@pytest.fixture
def policy(hospitals):
    """Three fits more than there were: one of them honest."""
    before = hospitals.policy.read_text()
    allowed = 3 + max(n_fits(kit) for kit in hospitals.kits.values())
    hospitals.policy.write_text(f"{POLICY}fits = {allowed}\n")
    yield
    hospitals.policy.write_text(before)


@pytest.fixture
def ended(hospitals, policy, monkeypatch):
    """How each attack of a job ended; the coordinator owns its kit, and allows its own program."""
    monkeypatch.setattr(hardening, "COORDINATOR_PROGRAM", PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=":")
    server, session = start_coordinator(hospitals.coordinator), None
    try:
        session = Session(hospitals.coordinator, PATIENCE)
        wait_until(lambda: session.connected() == set(SIZES), "connecting")
        job = Job(hospitals.coordinator, session, list(SIZES), Watch(str, dict))
        return job.follow(lambda: server.poll() is None).result["ended"]
    finally:
        if session is not None:
            session.close()
        end_coordinator(server)


def test_parameters_cannot_be_chosen(hospitals, ended):
    attempts = {
        "ask_for_as_many_components_as_images": "5 images per component",
        "change_the_seed_of_a_fit": "other settings or another seed",
        "analyse_a_crafted_model": "took part in no fit that ended in this model",
        "forge_the_mean": "not the sum of the answers",
        "craft_the_state": "the state that was sent is not the one of",
    }
    refusals = {name: ended[name] for name in attempts}
    for name, reason in attempts.items():
        assert reason in refusals[name], name
    for name in SIZES:
        assert ended["send_parameters"][name].startswith("MessageError: 'do' must be one of")
    check_seeds(hospitals, ended)
    for name, kit in hospitals.kits.items():
        assert check_chain(kit.audit_log).fault == ""
        lines = list(AuditLog(kit.audit_log).read())
        told = [line["text"] for line in lines if line["event"] in ("refused", "stopped")]
        for reason in ("'do' must be one of", *attempts.values(), "different fits in all"):
            if reason != attempts["craft_the_state"] or name == min(SIZES):
                assert any(reason in text for text in told), (name, reason)
        stopped = [line["text"] for line in lines if line["event"] == "stopped"]
        assert any("not the sum of the answers" in text for text in stopped)


def check_seeds(hospitals, ended) -> None:
    """Latents do not follow from seeds and names, and there are no 16 fits to ask for."""
    called = [f"{name}/{number:02d}" for name, size in SIZES.items() for number in range(size)]
    found = np.array(ended["guess_starting_latents"])
    guessed = starting_latents(FIRST_SEED, called, 2).sum(axis=0)
    drawn = hospitals.starting_latents(2, FIRST_SEED).sum(axis=0)
    np.testing.assert_allclose(found, drawn, atol=1e-6)  # known to this test alone
    assert np.abs(found - guessed).max() > 0.1
    n_answered, refusal = ended["try_many_seeds"]
    assert n_answered == 0
    assert "different fits in all" in refusal
