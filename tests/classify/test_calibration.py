"""Calibration: a temperature and an offset per class from evidence of images not seen."""

import numpy as np
import pytest

from anamorph.classify.calibration import OFFSET_SPREAD, Calibration, folds_of


def drawn(n_images, temperature, offsets, seed=0):
    """Return joint evidence (N, 3), and classes drawn as the given calibration says."""
    draws = np.random.default_rng(seed)
    joint = draws.normal(-500, 30, (n_images, 3))
    logs = Calibration(temperature, np.asarray(offsets)).log_probabilities(joint)
    return joint, (draws.random((n_images, 1)) > np.exp(logs).cumsum(axis=1)).sum(axis=1)


def test_it_finds_the_temperature_and_the_offsets_that_images_were_drawn_with():
    found = Calibration.learn(*drawn(40000, 12.0, [0.4, -0.3, -0.1]))
    assert found.temperature == pytest.approx(12, rel=0.03)
    assert np.allclose(found.offsets, [0.4, -0.3, -0.1], atol=0.05)


def test_few_images_leave_offsets_near_nought():
    found = Calibration.learn(*drawn(6, 12.0, [0.0, 0.0, 0.0]))
    assert np.abs(found.offsets).max() < OFFSET_SPREAD


def test_one_odd_image_does_not_decide():
    joint, numbers = drawn(2000, 12.0, [0.0, 0.0, 0.0])
    before = Calibration.learn(joint, numbers)
    joint[0], numbers[0] = [0, -1e6, -1e6], 1
    after = Calibration.learn(joint, numbers)
    assert after.temperature == pytest.approx(before.temperature, rel=0.05)


def test_none_leaves_evidence_as_it_is():
    joint = np.array([[-10.0, -11.0], [-500.0, -490.0]])
    expected = joint - np.logaddexp(*joint.T)[:, None]
    assert np.allclose(Calibration.none(2).log_probabilities(joint), expected)


def test_perfect_evidence_stays_within_bounds():
    numbers = np.arange(30) % 3
    joint = np.where(np.arange(3) == numbers[:, None], 0.0, -100.0)
    found = Calibration.learn(joint, numbers)
    assert 1 <= found.temperature < 100
    assert np.array_equal(found.log_probabilities(joint).argmax(axis=1), numbers)


def test_folds_spread_every_class_evenly():
    numbers = np.array([0, 0, 1, 0, 1, 0, 0, 1, 1])
    folds = folds_of(numbers, 3)
    assert folds.tolist() == [0, 1, 0, 2, 1, 0, 1, 2, 0]
