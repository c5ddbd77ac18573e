"""Checksums are linear, and witnesses are drawn so that nobody vouches for itself."""

from collections import Counter

import numpy as np
import pytest

from anamorph.federation.masking.checksums import (
    Checksums,
    added_up,
    challenge_of,
    digest_of,
    witnesses_of,
)
from anamorph.federation.masking.field import PRIME, add_into


def test_checksums_of_parts_add_up_to_those_of_the_total():
    generator = np.random.default_rng(0)
    parts = generator.integers(0, PRIME, (4, 3, 1000), dtype=np.uint64)
    total = np.zeros((3, 1000), np.uint64)
    for part in parts:
        for mine, block in zip(total, part, strict=True):
            add_into(mine, block)
    values = added_up(Checksums.of(b"challenge", part) for part in parts)
    assert values == Checksums.of(b"challenge", total)
    total[2, 7] ^= np.uint64(1)
    assert values != Checksums.of(b"challenge", total)


def test_the_challenge_depends_on_every_number_and_on_what_is_asked():
    numbers = {"a": b"1", "b": b"2"}
    challenge = challenge_of(b"question", b"total", numbers)
    assert challenge != challenge_of(b"another", b"total", numbers)
    assert challenge != challenge_of(b"question", b"another", numbers)
    assert challenge != challenge_of(b"question", b"total", numbers | {"b": b"3"})
    assert digest_of(b"ab", b"c") != digest_of(b"a", b"bc")


@pytest.mark.parametrize("n_sites", [2, 3, 6])
def test_every_answer_has_a_witness_other_than_its_site(n_sites):
    roster = tuple(f"site{n}" for n in range(n_sites))
    drawn = Counter()
    for n in range(300):
        witnesses = witnesses_of(str(n).encode(), roster)
        witnessed = [name for names in witnesses.values() for name in names]
        assert sorted(witnessed) == sorted(roster)
        assert all(witness not in names for witness, names in witnesses.items())
        drawn[max(witnesses, key=lambda name: len(witnesses[name]))] += 1
    if n_sites > 2:
        assert min(drawn.values()) > 300 / n_sites / 2
    assert witnesses_of(b"", ("alone",)) == {}
