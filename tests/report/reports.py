"""Small models, and the reports on them, that tests of reports share."""

import re

import numpy as np

from tests import simulated

N, K = 14, 3
SECTIONS = [
    "mean", "modes", "samples", "fits", "warps", "latents", "outliers", "fit", "settings",
    "citation",
]  # fmt: skip


def random_model(likelihood="bernoulli", space=(12, 10), n_channels=1, affine=None):
    """Return a model that was never fitted but knows what it takes, and images (N, ...)."""
    return simulated.finished_model(
        likelihood, space, n_channels, (1.0,) * len(space),
        n_images=N, n_components=K, affine=affine, seconds=(3.0, 1.0, 1.2),
    )  # fmt: skip


def latents(n_rows=N):
    return np.random.default_rng(0).standard_normal((n_rows, K))


def section_anchors(page):
    return re.findall(r'<section id="(\w+)"', page)
