"""Policies: careful defaults, and files that change what they mention."""

import pytest

from anamorph.federation import Policy, PolicyError
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
