"""The table of overlaps, small: labels in the template by our own warps."""

import numpy as np
import pytest

from examples.warps import overlap
from tests.model.test_residuals import blobs


def test_overlap_is_the_mean_dice_of_all_pairs():
    labels = np.zeros((3, 4, 4), bool)
    labels[:, :2] = True
    labels[2, 1:] = [[True], [False], [False]]
    labels[2, 0] = False
    assert overlap.overlap(labels) == pytest.approx((1 + 2 * (2 * 4 / 12)) / 3)


def test_the_smallest_determinants_are_those_of_the_interior():
    rows, _ = np.mgrid[:12, :12]
    field = np.stack([-0.5 * rows, np.zeros_like(rows)]).astype(float)
    assert overlap._smallest_determinants(field[None]) == pytest.approx((0.5, 0.5))
    field[0, 6, 6] -= 0.8  # the cells above turn over, and central differences see nothing there
    at_voxels, at_corners = overlap._smallest_determinants(field[None])
    assert at_corners < 0 < at_voxels


def test_warps_raise_the_overlap_of_labels():
    images = blobs((16, 20), 9, seed=2)
    data = overlap.Data(images, {"bright": images > 0.6}, n_held_out=3)
    methods = {"before": overlap.nothing, "ours": overlap.ours(n_components=3, n_iter=6)}
    found = {(row["method"], row["images"]): row for row in overlap.rows(data, methods)}
    before, after = (found[name, "of the template"] for name in methods)
    assert after["bright"] > before["bright"]
    assert after["smallest determinant"] > 0
    assert found["ours", "held out"]["seconds per image"] > 0
