"""Arithmetic modulo 2^61 - 1, checked against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from anamorph.federation.masking.field import (
    PRIME,
    add_into,
    from_residues,
    subtract_from,
    to_residues,
    uniform_residues,
)
from anamorph.kernels.cpu.residues import inner_product

EDGES = [0, 1, 2, 2**29, 2**32 - 1, 2**32, 2**60, 2**61 - 3, PRIME - 1]
residues = st.lists(st.integers(0, PRIME - 1) | st.sampled_from(EDGES), min_size=1, max_size=40)


@given(residues, residues)
def test_sums_differences_and_products_are_those_of_integers(one, other):
    n = min(len(one), len(other))
    a, b = np.array(one[:n], np.uint64), np.array(other[:n], np.uint64)
    total, difference = a.copy(), a.copy()
    add_into(total, b)
    subtract_from(difference, b)
    assert [int(x) for x in total] == [(x + y) % PRIME for x, y in zip(one, other, strict=False)]
    assert [int(x) for x in difference] == [
        (x - y) % PRIME for x, y in zip(one, other, strict=False)
    ]
    expected = sum(x * y for x, y in zip(one, other, strict=False)) % PRIME
    assert int(inner_product(a, b)) % PRIME == expected


@given(st.lists(st.integers(-(2**60) + 1, 2**60 - 1), min_size=1))
def test_whole_numbers_come_back(numbers):
    numbers = np.array(numbers, np.int64)
    residues = to_residues(numbers)
    assert residues.max() < PRIME
    np.testing.assert_array_equal(from_residues(residues), numbers)


def test_streams_are_uniform_and_repeatable():
    parts = [part for _, part in uniform_residues(bytes(32), 200_000)]
    stream = np.concatenate(parts)
    assert len(stream) == 200_000
    assert stream.max() < PRIME
    counts = np.bincount((stream >> np.uint64(53)).astype(np.int64), minlength=256)
    expected = len(stream) / 256
    assert chi2.cdf(np.sum((counts - expected) ** 2) / expected, 255) < 1 - 1e-6
    again = np.concatenate([part for _, part in uniform_residues(bytes(32), 200_000)])
    np.testing.assert_array_equal(stream, again)
    other = np.concatenate([part for _, part in uniform_residues(bytes(31) + b"1", 200_000)])
    assert not np.any(stream == other)


def test_the_word_that_is_no_residue_is_drawn_again():
    class Stream:
        words = (2**61 - 1, 5, 2**64 - 1, 7, 2**61 - 1, 9, 11)

        def update(self, data):
            taken, self.words = self.words[: len(data) // 8], self.words[len(data) // 8 :]
            return np.array(taken, np.uint64).tobytes()

    from anamorph.federation.masking import field

    drawn = field._drawn(Stream(), 4)
    assert list(drawn) == [11, 5, 9, 7]  # the word for the first was no residue twice


@pytest.mark.parametrize("bit", range(61))
def test_a_change_of_any_bit_changes_the_checksum(bit):
    # Modulo 2^64 a change of the top bit would pass half of the time.
    from anamorph.federation.masking.checksums import Checksums

    block = np.arange(10, dtype=np.uint64)
    changed = block.copy()
    changed[3] = (int(changed[3]) + 2**bit) % PRIME
    assert Checksums.of(b"c", [block]) != Checksums.of(b"c", [changed])
