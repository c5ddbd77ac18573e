"""Landmarks of real faces: the table of coordinates, and what a similarity transform leaves."""

import numpy as np
import pytest

from examples.warps import faces, landmarks


def test_every_face_has_landmarks_that_lie_as_in_a_face():
    for expression in ("neutral", "smiling"):
        marks = faces.landmarks(expression)
        assert marks.shape == (102, 24, 2)
        eyes, mouth, chin = marks[:, :2], marks[:, 13:15], marks[:, 19:20]
        assert (eyes[..., 0].max(axis=1) < mouth[..., 0].min(axis=1)).all()
        assert (mouth[..., 0].max(axis=1) < chin[..., 0].min(axis=1)).all()
        assert (eyes[:, 0, 1] < eyes[:, 1, 1]).all()


def test_a_similarity_transform_is_removed():
    draws = np.random.default_rng(0)
    shape = draws.standard_normal((7, 2))
    angles, sizes = draws.uniform(-0.5, 0.5, 9), draws.uniform(0.8, 1.2, 9)
    turns = np.array([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in angles])
    moved = sizes[:, None, None] * (shape @ turns) + draws.standard_normal((9, 1, 2))
    assert landmarks.spread(moved) > 0.5
    assert landmarks.spread(landmarks.without_similarity(moved)) == pytest.approx(0, abs=1e-6)
