"""Simulated brains: the same seed gives the same volumes, and they age."""

import numpy as np

from anamorph.datasets.simulated import VENTRICLES, brains


def test_simulated_brains_are_the_same_every_time_and_age():
    labels, ages = brains(12, (16, 18, 16), seed=3)
    again, _ = brains(12, (16, 18, 16), seed=3)
    other, _ = brains(12, (16, 18, 16), seed=4)
    np.testing.assert_array_equal(labels, again)
    assert (labels != other).any()
    assert labels.dtype == np.uint8
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    volumes = (labels == VENTRICLES).sum(axis=(1, 2, 3))
    assert np.corrcoef(volumes, ages)[0, 1] > 0.8
    border = labels.copy()
    border[:, 1:-1, 1:-1, 1:-1] = 0
    assert not border.any()
