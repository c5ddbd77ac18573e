"""Sums of latents by group with noise: differentially private whatever else is known.

Each image adds a vector of at most unit norm in each of three parts: 1, its latents and their
products, in units of the bound to which latents are clipped. Vectors are rounded to a grid, added
up as integers, and each site adds discrete Gaussian noise. Under masks only the total is seen, so
each site adds a share of the noise, such that *all sites but one* add the whole of it: if one site
is dishonest and leaves its share out, others are protected as promised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.privacy import N_PARTS, PrivacyTerms
from anamorph.federation.site.discrete_gaussian import discrete_gaussian
from anamorph.fitting.sums import ANALYSES, Sums

#: Steps of the grid per unit. Sums are whole numbers of steps, which fixed-point numbers keep.
STEPS = 2**20


def private_group_sums(
    latents: Float64Array,
    labels: Sequence[str],
    groups: Sequence[str],
    terms: PrivacyTerms,
    multiplier: float,
    n_sites: int,
) -> Sums:
    """Return noisy sums of latents by group.

    Parameters
    ----------
    latents : (N, K)
    labels : N texts
        The group of every image.
    groups : list of str
        Groups to answer for, each once: an image is in one of them, or in none.
    terms : PrivacyTerms
    multiplier : float
        Standard deviation of the noise of all sites, per sensitivity.
    n_sites : int
        How many sites add up their answers before anybody sees them; 1 without masks.

    Returns
    -------
    Sums
        Fields of `sums.ANALYSES["statistics"]`: latents in units of ``terms.clip``, their products
        in units of its square. It names all N images, whose number is public, not those of groups.
    """
    n_latents = latents.shape[1]
    steps = np.rint(STEPS * _contributions(clipped(latents, terms.clip) / terms.clip))
    totals = np.array(
        [steps[[label == group for label in labels]].sum(axis=0) for group in groups]
    ).reshape(len(groups), -1)
    variance = noise_variance(multiplier, totals.shape[1], n_sites)
    noise = [discrete_gaussian(variance) for _ in range(totals.size)]
    noisy = (totals + np.array(noise, np.float64).reshape(totals.shape)) / STEPS
    sizes, sums, packed = np.split(noisy, [1, 1 + n_latents], axis=1)
    scatter = np.zeros((len(groups), n_latents, n_latents))
    rows, columns = np.tril_indices(n_latents)
    scatter[:, rows, columns] = scatter[:, columns, rows] = packed
    values = (sizes[:, 0], sizes[:, 0], sums, scatter)
    return Sums(len(latents), dict(zip(ANALYSES["statistics"], values, strict=True)))


def clipped(latents: Float64Array, bound: float) -> Float64Array:
    """Return latents (N, K), shortened where their norm exceeds a bound."""
    norms = np.linalg.norm(latents, axis=1, keepdims=True)
    return np.asarray(latents * np.minimum(1.0, bound / np.maximum(norms, 1e-300)))


def noise_variance(multiplier: float, n_numbers: int, n_sites: int) -> int:
    """Return the variance of the noise that one site adds to each number, in steps of the grid.

    Parameters
    ----------
    multiplier : float
        Standard deviation of the noise of all sites, per sensitivity.
    n_numbers : int
        Numbers that one image contributes to.
    n_sites : int
        How many sites add noise. All but one of them add the whole.

    Returns
    -------
    int
        At least 1.
    """
    # Rounding moves each number by half a step at most.
    sensitivity = math.sqrt(N_PARTS) * STEPS + math.sqrt(n_numbers) / 2
    return math.ceil((multiplier * sensitivity) ** 2 / max(1, n_sites - 1))


def _contributions(latents: Float64Array) -> Float64Array:
    """Return 1, z and the lower triangle of zz' for each image, of norm at most 1 each."""
    rows, columns = np.tril_indices(latents.shape[1])
    products = latents[:, rows] * latents[:, columns]
    return np.concatenate([np.ones((len(latents), 1)), latents, products], axis=1)
