"""ln p(f | a') once more, in float64 and as plainly as possible, and random images to try it on."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from anamorph.likelihoods import LIKELIHOODS


def gaussian(appearance, images, precision):
    scale = np.asarray(precision).reshape(-1, *(1,) * (images.ndim - 2))
    return (np.log(scale / (2 * np.pi)) - scale * (appearance - images) ** 2) / 2


def bernoulli(appearance, images, precision):
    clipped = np.clip(appearance, -40, 40)
    return images * clipped - np.logaddexp(0, clipped)


def categorical(appearance, images, precision):
    log_sum = np.logaddexp.reduce(appearance, axis=1, keepdims=True)
    return images * (appearance - log_sum)


def poisson(appearance, images, precision):
    clipped = np.clip(appearance, -20, 20)
    return images * clipped - np.exp(clipped) - gammaln(images + 1)


VALUES = {
    "gaussian": gaussian,
    "bernoulli": bernoulli,
    "categorical": categorical,
    "poisson": poisson,
}


def log_likelihood(name, appearance, images, precision):
    """Return ln p(f | a'), (N,), of appearances and images (N, C, *space), NaN where missing."""
    values = VALUES[name](np.float64(appearance), np.float64(images), precision)
    return np.nansum(values, axis=tuple(range(1, images.ndim)))


def random_images(name, generator, shape, *, soft=False, missing=0.0):
    """Return images (N, C, *space) that a likelihood can have made, some voxels NaN."""
    likelihood, (n_images, n_channels, *space) = LIKELIHOODS[name], shape
    images = likelihood.expectation(generator.standard_normal(shape))
    if not soft:
        images = likelihood.draw(images, np.ones(n_channels), generator)
    n_masks = 1 if likelihood.holds_classes else n_channels
    mask = generator.random((n_images, n_masks, *space)) < missing
    return np.where(mask, np.nan, images).astype(np.float32)


def matrices(hessian, n_channels):
    """Return packed Hessians (N, P, ...) as symmetric matrices (N, C, C, ...)."""
    full = np.zeros((len(hessian), n_channels, n_channels, *hessian.shape[2:]))
    for c in range(n_channels):
        full[:, c, c] = hessian[:, c]
    if hessian.shape[1] > n_channels:
        pairs = [(b, c) for b in range(n_channels) for c in range(b + 1, n_channels)]
        for (b, c), entry in zip(pairs, range(n_channels, hessian.shape[1]), strict=True):
            full[:, b, c] = full[:, c, b] = hessian[:, entry]
    return full
