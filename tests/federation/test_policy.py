"""Policies and scales: small pieces on their own."""

import pytest

from anamorph.federation.coordinator.scales import Scales
from anamorph.federation.protocol.errors import PolicyError
from anamorph.federation.site.policy import Policy
from anamorph.fitting.sums import ANALYSES, FIELDS


def test_defaults_are_careful():
    policy = Policy()
    assert policy.minimum_images == 10
    assert policy.secure_sum
    assert policy.fits == 1
    assert set(policy.questions) == FIELDS.keys() | ANALYSES.keys()


def test_a_file_changes_what_it_mentions(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('minimum_images = 25\nquestions = ["moments"]\n')
    policy = Policy.read(path)
    assert policy.minimum_images == 25
    assert policy.questions == ("moments",)
    assert policy.secure_sum
    path.write_text("minimum_images = 2.5\n")
    with pytest.raises(PolicyError, match=r"policy.toml: minimum_images must be an integer >= 0"):
        Policy.read(path)


def test_scales_follow_totals():
    scales = Scales()
    wide = scales.exponents("moments", ["total"])["total"]
    assert scales.learn("moments", {"total": 0.01}, 3)  # too coarse: once more
    fine = scales.exponents("moments", ["total"])["total"]
    assert fine < wide
    assert 2.0**fine > 1000 * 0.01  # sites whose sums cancel have room
    assert not scales.learn("moments", {"total": 0.01}, 3)
    scales.widen("moments", ["total"])
    assert scales.exponents("moments", ["total"])["total"] > fine
    assert scales.exponents("mean_derivatives", ["total"])["total"] == wide


def test_totals_of_nothing_are_asked_once_more_only():
    scales = Scales()
    assert scales.learn("moments", {"total": 0.0}, 3)
    assert not scales.learn("moments", {"total": 0.0}, 3)
