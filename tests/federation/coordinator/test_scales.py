"""Fixed-point ranges follow the totals, and widen where something does not fit."""

from anamorph.federation.coordinator.scales import Scales


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
