"""Small models of every kind that the explorer shows, and pages of them."""

from __future__ import annotations

import json
import re

import numpy as np

from tests import simulated

EVIL = "</script><img src=x onerror=alert(1)>'\"&{{}}${a}`\u2028\\"
AFFINE = np.array([[-2.0, 0, 0, 10], [0, 0, 1.5, -20], [0, 1.0, 0, 5], [0, 0, 0, 1]])
N, K = 9, 3

# name: likelihood, grid, channels, affine
KINDS = {
    "digits": ("bernoulli", (28, 28), 1, None),
    "faces": ("gaussian", (22, 15), 3, None),
    "labels": ("categorical", (12, 16, 10), 3, None),
    "volumes": ("gaussian", (11, 8, 14), 1, AFFINE),
}


def model_of(kind, n_components=K):
    """Return a model that was never fitted but knows what it takes, and images (N, ...)."""
    likelihood, space, n_channels, affine = KINDS[kind]
    sizes = (1.0,) * len(space) if affine is None else (2.0, 1.0, 1.5)
    return simulated.finished_model(
        likelihood, space, n_channels, sizes,
        n_images=max(N, n_components + 1), n_components=n_components, affine=affine,
    )  # fmt: skip


def latents_of(n_rows=N, n_components=K):
    return np.random.default_rng(5).standard_normal((n_rows, n_components))


def facts_in(page):
    """Return the facts that a page holds."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', page, re.DOTALL).group(1))
