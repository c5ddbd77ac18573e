"""Partitions stay with their workers, and workers get their share."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anamorph.cluster.crew import placed

workers = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), min_size=1)


@given(st.integers(1, 40), st.lists(workers, min_size=1, max_size=4))
def test_everyone_has_a_share_whoever_comes_and_goes(n_partitions, changes):
    places = [None] * n_partitions
    for threads in changes:
        places = placed(places, threads)
        counts = Counter(places)
        for name, number in threads.items():
            assert abs(counts[name] - n_partitions * number / sum(threads.values())) < 1
        assert set(counts) <= set(threads)


@given(st.integers(1, 40), workers)
def test_nothing_moves_while_workers_stay(n_partitions, threads):
    places = placed([None] * n_partitions, threads)
    assert placed(places, threads) == places


def test_only_partitions_of_a_dead_worker_move():
    before = placed([None] * 6, {"a": 1, "b": 1, "c": 1})
    after = placed(before, {"a": 1, "c": 1})
    assert before == ["a", "a", "b", "b", "c", "c"]
    assert [worker for worker in after if worker == "b"] == []
    assert all(now == then for now, then in zip(after, before, strict=True) if then != "b")
