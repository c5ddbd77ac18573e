"""A site that is killed (kill -9) at any moment of any question, or whose disk is full."""

import json
import re

import pytest

from anamorph.federation import SitesLostError, Terms
from tests.federation.conftest import fit, objective_error
from tests.federation.site_process import MORTAL, Accident, MortalTransport

ITERATION = (
    ("shape_derivatives", 1),
    ("appearance_derivatives", 1),
    ("propose_latents", 1),
    ("update_latents", 1),
    ("mean_derivatives", 1),
    ("shape_derivatives", 2),
)
# In the order of a fit: what is asked to begin with, in the first iteration, and in the second one,
# which the first death there leads into, and which begins with warps that are shot again.
QUESTIONS = (
    ("moments", 1),
    ("start_latents", 1),
    ("transform_latents", 1),
    *ITERATION,
    ("update_latents", 2),
    ("keep_displacements", 1),
    *ITERATION,
)
# What happens to each question, and at the end of an iteration, when the state is written.
PHASES = ("block", "total", "reveal", "settle", "keep")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "questions"),
    [
        ("arrived", QUESTIONS),
        ("half a line", QUESTIONS),  # of the audit log or the ledger
        ("not renamed", [("keep", 2), ("keep", 1), ("keep", 1)]),
        ("answered", QUESTIONS),
        ("arrived", [(phase, number) for phase in PHASES for number in (1, 2)]),
        ("answered", [(phase, number) for phase in PHASES for number in (1, 2)]),
    ],
)
def test_a_site_that_is_killed_changes_nothing(tmp_path, pooled, kind, questions):
    transport = MortalTransport(tmp_path, [Accident(kind, *question) for question in questions])
    try:
        result, told = fit(transport, terms=Terms(patience=0.0, retries=len(questions)))
    finally:
        transport.stop()
    assert transport.accidents == []
    assert told.notes == ()
    assert objective_error(result, pooled) < 1e-5
    assert not list((tmp_path / MORTAL).rglob(".*"))  # what was half written is gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "question", "complaint"),
    [
        ("ledger", "update_latents", "ledger of this site cannot be written (No space left"),
        ("state", "keep", "the state of the fit cannot be written to the disk of this site"),
        ("audit", "block", "audit log cannot be written (No space left"),
    ],
)
def test_a_full_disk_is_named_and_loses_nothing(tmp_path, pooled, kind, question, complaint):
    checkpoint, terms = tmp_path / "checkpoint", Terms(patience=0.0, retries=0)
    transport = MortalTransport(tmp_path, [Accident(kind, question, occurrence=2)])
    try:
        with pytest.raises(SitesLostError, match=re.escape(complaint)):
            fit(transport, terms=terms, checkpoint=checkpoint)
    finally:
        transport.stop()
    transport = MortalTransport(tmp_path, [])  # there is space again, and the same call goes on
    try:
        result, _ = fit(transport, terms=terms, checkpoint=checkpoint)
    finally:
        transport.stop()
    assert objective_error(result, pooled) < 1e-5
    for name in ("ledger.jsonl", "audit.jsonl"):
        lines = (tmp_path / MORTAL / name).read_text().splitlines()
        assert all(json.loads(line) for line in lines)
