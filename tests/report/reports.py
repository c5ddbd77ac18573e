"""Small models, and the reports on them, that tests of reports share."""

import re

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.io.arrays import ImageFormat
from anamorph.io.modelfile import Origin
from tests import simulated

N, K = 14, 3
SECTIONS = ["mean", "modes", "samples", "fits", "warps", "latents", "fit", "settings", "citation"]


def random_model(likelihood="bernoulli", space=(12, 10), n_channels=1, affine=None):
    """Return a model that was never fitted but knows what it takes, and images (N, ...)."""
    settings, parameters, _, images = simulated.random_problem(
        likelihood, n_components=K, n_images=N, missing=0.0,
        space=space, n_channels=n_channels, voxel_size=(1.0,) * len(space),
    )  # fmt: skip
    channel_axis = None if n_channels == 1 or likelihood == "categorical" else len(space) + 1
    model = ShapeAppearanceModel(K, likelihood=likelihood, channel_axis=channel_axis)
    layout = ImageFormat(likelihood, space, n_channels, channel_axis)
    origin = Origin(N, affine, 0, (3.0, 1.0, 1.2))
    model._set_fitted(layout, settings, parameters, [-9.0, -5.0, -4.0], origin)
    if likelihood == "categorical":
        return model, images.argmax(axis=1)
    return model, layout.to_user(images)


def latents(n_rows=N):
    return np.random.default_rng(0).standard_normal((n_rows, K))


def section_anchors(page):
    return re.findall(r'<section id="(\w+)"', page)
