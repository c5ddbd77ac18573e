"""Masks cancel exactly in the total, and without one of the keys nothing is to be seen."""

import time

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from anamorph.federation.masking.identity import Identity, new_identities
from anamorph.federation.masking.secure_sum import Occasion, from_fixed_point, to_fixed_point
from anamorph.federation.protocol.errors import AnswerError, SignatureError, SumOverflowError


def agreed(identities, roster=None, context="question", attempt=0):
    occasions = {one.name: Occasion(one, "fit", 3, attempt) for one in identities}
    offers = {name: occasion.offer() for name, occasion in occasions.items()}
    for occasion in occasions.values():
        occasion.agree(roster or list(occasions), offers, context)
    return occasions


def masked(values, exponent, n_sites=3, block=0, context="question"):
    occasions = agreed(new_identities("abcdefgh"[:n_sites]), context=context)
    sent = []
    for row, occasion in zip(values, occasions.values(), strict=True):
        numbers = to_fixed_point(row, exponent, n_sites, "x")
        occasion.mask(numbers, block)
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
    occasions = {one.name: Occasion(one, "fit", 3, 0) for one in new_identities("abc")}
    offers = {name: occasion.offer() for name, occasion in occasions.items()}
    total = np.zeros(16, np.uint64)
    for name, occasion in occasions.items():
        occasion.agree("abc", offers, "another question" if name == "c" else "question")
        occasion.mask(total, 0)
    assert total.any()


def test_overflow_is_an_error():
    with pytest.raises(SumOverflowError, match=r"x is not below 2\^4"):
        to_fixed_point(np.array([1.0, -16.0]), 4, 3, "x")
    largest = np.array([np.nextafter(16.0, 0), -np.nextafter(16.0, 0)])
    total = sum(to_fixed_point(largest, 4, 3, "x") for _ in range(3))
    np.testing.assert_allclose(from_fixed_point(total, 4, 3), 3 * largest)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_an_error(value):
    with pytest.raises(AnswerError, match="not finite"):
        to_fixed_point(np.array([value]), 4, 3, "x")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(3, 9))
def test_fixed_point_is_as_fine_as_it_says(values, n_sites):
    numbers = np.array(values)
    back = from_fixed_point(to_fixed_point(numbers, 20, n_sites, "x"), 20, n_sites)
    assert np.abs(back - numbers).max() <= 2.0 ** -(62 - 20 - 4)


def test_a_key_is_used_once():
    identities = new_identities("abc")
    occasions = {one.name: Occasion(one, "fit", 3, 0) for one in identities}
    offers = {name: occasion.offer() for name, occasion in occasions.items()}
    occasions["a"].agree("abc", offers, "question")
    with pytest.raises(SignatureError, match="was used"):
        occasions["a"].agree("abc", offers, "question")


def test_a_key_of_someone_else_is_refused():
    a, b, c = new_identities("abc")
    (stranger,) = new_identities("b")
    own = Occasion(a, "fit", 3, 0)
    offers = {"a": own.offer(), "b": Occasion(stranger, "fit", 3, 0).offer()}
    offers["c"] = Occasion(c, "fit", 3, 0).offer()
    with pytest.raises(SignatureError, match="said to be of b is not signed by it"):
        own.agree("abc", offers, "question")
    own = Occasion(a, "fit", 3, 0)
    offers = {"b": Occasion(b, "fit", 2, 0).offer(), "c": Occasion(c, "fit", 3, 0).offer()}
    with pytest.raises(SignatureError, match="not signed"):  # a key of another step
        own.agree("abc", offers, "question")
    own = Occasion(a, "fit", 3, 0)
    with pytest.raises(SignatureError, match="d has no certificate"):
        own.agree("ad", {"d": Occasion(b, "fit", 3, 0).offer()}, "question")


@pytest.mark.parametrize(
    "new_key",
    [
        lambda: rsa.generate_private_key(65537, 2048),
        lambda: ec.generate_private_key(ec.SECP256R1()),
    ],
)
def test_certificates_may_have_other_kinds_of_keys(new_key):
    key = new_key()
    identity = Identity("a", key, {"a": key.public_key()})
    identity.verify("a", b"text", identity.sign(b"text"))
    with pytest.raises(SignatureError):
        identity.verify("a", b"other text", identity.sign(b"text"))


def test_masking_is_fast():
    values = np.random.default_rng(0).normal(size=2**20).astype(np.float32)
    occasion = agreed(new_identities("abc"))["a"]
    started = time.perf_counter()
    occasion.mask(to_fixed_point(values, 10, 3, "x"), 0)
    seconds = time.perf_counter() - started
    assert values.nbytes / seconds > 10e6  # 35 MB/s of float32 on an idle processor
