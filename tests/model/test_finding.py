"""Poses of new images."""

from types import SimpleNamespace

import numpy as np

from anamorph.model import finding
from anamorph.model.pose_steps import PoseSearch


def test_the_more_probable_of_far_and_near_is_found(monkeypatch):
    values = {True: np.array([-3.0, -1.0]), False: np.array([-2.0, -5.0])}

    def matched(generator, images, *, search):
        return PoseSearch(np.full((2, 3), float(search)), values[search], np.ones(2, bool))

    monkeypatch.setattr(finding, "_matched_poses", matched)
    found = finding.find_poses(SimpleNamespace(), np.zeros((2, 1, 4, 4), np.float32))
    np.testing.assert_array_equal(found, [[0, 0, 0], [1, 1, 1]])
