"""Sharpness of templates: what the example measures."""

import numpy as np
import pytest

from examples.warps.sharpness import central_energy, our_mean
from tests.model.test_residuals import blobs


def test_energy_is_that_of_the_central_half():
    image = np.zeros((8, 8))
    image[0] = 5  # at the border
    assert central_energy(image) == 0
    image[3:5, 3:5] = 1  # eight neighbours differ by 1
    assert central_energy(image) == pytest.approx(8)


def test_a_model_is_sharper_than_the_mean_of_images():
    images = blobs((16, 20), 6, seed=2)
    assert central_energy(our_mean("none", 2)(images)) > central_energy(images.mean(axis=0))
