"""Pairwise masks: they cancel in the total, hide each part, and are made once."""

import numpy as np
import pytest
from scipy.stats import chi2

from anamorph.federation import SignatureError
from anamorph.federation.masking.field import PRIME, add_into, from_residues, to_residues
from anamorph.federation.masking.pairwise import MaskKey


def agreed(names="abc", bindings=None):
    keys = {name: MaskKey() for name in names}
    public = {name: key.public for name, key in keys.items()}
    return {
        name: key.agree(
            name,
            {other: public[other] for other in names if other != name},
            (bindings or {}).get(name, b"question"),
        )
        for name, key in keys.items()
    }


@pytest.mark.parametrize("names", ["abc", "abcdefg"])
def test_masks_cancel_in_the_total_exactly(names):
    generator = np.random.default_rng(0)
    masks = agreed(names)
    for _ in range(2):  # blocks
        parts = generator.integers(-(2**40), 2**40, (len(names), 70_000))
        total = np.zeros(70_000, np.uint64)
        for name, part in zip(names, parts, strict=True):
            residues = to_residues(part)
            masks[name].mask(residues)
            assert not np.array_equal(from_residues(residues), part)
            add_into(total, residues)
        np.testing.assert_array_equal(from_residues(total), parts.sum(axis=0))


def test_what_one_site_sends_is_uniform():
    residues = np.zeros(200_000, np.uint64)
    agreed()["a"].mask(residues)
    assert residues.max() < PRIME
    counts = np.bincount((residues >> np.uint64(53)).astype(np.int64), minlength=256)
    expected = len(residues) / 256
    assert chi2.cdf(np.sum((counts - expected) ** 2) / expected, 255) < 1 - 1e-6


def test_no_two_blocks_have_the_same_masks():
    masks = agreed()["a"]
    blocks = [np.zeros(100, np.uint64) for _ in range(3)]
    for block in blocks:
        masks.mask(block)
    assert len({block.tobytes() for block in blocks}) == 3


def test_masks_of_different_questions_do_not_cancel():
    total = np.zeros(16, np.uint64)
    for masks in agreed(bindings={"c": b"another question"}).values():
        part = np.zeros(16, np.uint64)
        masks.mask(part)
        add_into(total, part)
    assert total.any()


def test_a_key_is_used_once():
    key, other = MaskKey(), MaskKey()
    key.agree("a", {"b": other.public}, b"")
    with pytest.raises(SignatureError, match="a mask is made once"):
        key.agree("a", {"b": other.public}, b"")


@pytest.mark.parametrize("wrong", [bytes(32), b"short"])
def test_keys_that_are_none_are_refused(wrong):
    with pytest.raises(SignatureError, match="no key of X25519"):
        MaskKey().agree("a", {"b": wrong}, b"")
