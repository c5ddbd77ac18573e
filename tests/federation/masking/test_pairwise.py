"""Masks cancel exactly in the total, and without one of the keys nothing is to be seen."""

import time

import numpy as np
import pytest
from scipy.stats import chi2

from anamorph.federation import SignatureError
from anamorph.federation.masking.fixed_point import from_fixed_point, to_fixed_point
from anamorph.federation.masking.pairwise import PairwiseMasks
from anamorph.federation.protocol.identity import new_identities


def agreed(identities, roster=None, context="question", attempt=0):
    masks = {one.name: PairwiseMasks(one, "fit", 3, attempt) for one in identities}
    offers = {name: one_site.offer() for name, one_site in masks.items()}
    for one_site in masks.values():
        one_site.agree(roster or list(masks), offers, context)
    return masks


def masked(values, exponent, n_sites=3, block=0, context="question"):
    masks = agreed(new_identities("abcdefgh"[:n_sites]), context=context)
    sent = []
    for row, one_site in zip(values, masks.values(), strict=True):
        numbers = to_fixed_point(row, exponent, n_sites, "x")
        one_site.mask(numbers, block)
        sent.append(numbers)
    return sent


@pytest.mark.parametrize("n_sites", [3, 4, 7])
def test_the_total_is_exact_to_the_scale(n_sites):
    values = np.random.default_rng(0).normal(scale=1e3, size=(n_sites, 1001))
    total = np.sum(masked(values, 30, n_sites), axis=0, dtype=np.uint64)
    resolution = 2.0 ** -(62 - 30 - int(np.ceil(np.log2(n_sites))))
    error = np.abs(from_fixed_point(total, 30, n_sites) - values.sum(axis=0))
    assert error.max() <= n_sites * resolution


def test_what_a_site_sends_looks_uniform_whatever_it_holds():
    # Bytes of a constant: without masks a handful of values, with them all alike.
    sent = masked(np.full((3, 2**16), 0.5), 10)
    for numbers in sent:
        counts = np.bincount(numbers.view(np.uint8), minlength=256)
        expected = 8 * len(numbers) / 256
        statistic = np.sum((counts - expected) ** 2) / expected
        assert chi2.cdf(statistic, 255) < 1 - 1e-6
    bare = to_fixed_point(np.full(2**16, 0.5), 10, 3, "x").view(np.uint8)
    assert len(np.unique(bare)) < 256


def test_a_total_without_one_site_is_noise():
    values = np.ones((3, 4096))
    first, second, _ = masked(values, 10)
    incomplete = from_fixed_point(first + second, 10, 3)
    assert np.abs(incomplete).mean() > 100  # of a range of 2^12: uniform, not 2


def test_masks_differ_by_block_attempt_and_question():
    identities = new_identities("abc")
    streams = []
    for attempt, context, block in [(0, "q", 0), (0, "q", 1), (1, "q", 0), (0, "other", 0)]:
        numbers = np.zeros(64, np.uint64)
        agreed(identities, context=context, attempt=attempt)["a"].mask(numbers, block)
        streams.append(numbers)
    assert len({stream.tobytes() for stream in streams}) == 4


def test_sites_that_are_told_different_things_share_no_masks():
    masks = {one.name: PairwiseMasks(one, "fit", 3, 0) for one in new_identities("abc")}
    offers = {name: one_site.offer() for name, one_site in masks.items()}
    total = np.zeros(16, np.uint64)
    for name, one_site in masks.items():
        one_site.agree("abc", offers, "another question" if name == "c" else "question")
        one_site.mask(total, 0)
    assert total.any()


def test_a_key_is_used_once():
    identities = new_identities("abc")
    masks = {one.name: PairwiseMasks(one, "fit", 3, 0) for one in identities}
    offers = {name: one_site.offer() for name, one_site in masks.items()}
    masks["a"].agree("abc", offers, "question")
    with pytest.raises(SignatureError, match="was used"):
        masks["a"].agree("abc", offers, "question")


def test_a_key_of_someone_else_is_refused():
    a, b, c = new_identities("abc")
    (stranger,) = new_identities("b")
    own = PairwiseMasks(a, "fit", 3, 0)
    offers = {"a": own.offer(), "b": PairwiseMasks(stranger, "fit", 3, 0).offer()}
    offers["c"] = PairwiseMasks(c, "fit", 3, 0).offer()
    with pytest.raises(SignatureError, match="claims to come from b is not signed"):
        own.agree("abc", offers, "question")
    own = PairwiseMasks(a, "fit", 3, 0)
    offers = {
        "b": PairwiseMasks(b, "fit", 2, 0).offer(),
        "c": PairwiseMasks(c, "fit", 3, 0).offer(),
    }
    with pytest.raises(SignatureError, match="not signed"):  # a key of another step
        own.agree("abc", offers, "question")
    own = PairwiseMasks(a, "fit", 3, 0)
    with pytest.raises(SignatureError, match="d has no certificate"):
        own.agree("ad", {"d": PairwiseMasks(b, "fit", 3, 0).offer()}, "question")


def test_masking_is_fast():
    values = np.random.default_rng(0).normal(size=2**20).astype(np.float32)
    one_site = agreed(new_identities("abc"))["a"]
    started = time.perf_counter()
    one_site.mask(to_fixed_point(values, 10, 3, "x"), 0)
    seconds = time.perf_counter() - started
    assert values.nbytes / seconds > 10e6  # 35 MB/s of float32 on an idle processor
