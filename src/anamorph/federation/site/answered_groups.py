"""Groups that a site has answered for, and what they tell when put together.

An answer is a weighted sum over images. Whoever has several can combine them: "all" less "control"
is the sum over everybody else. A combination tells about the images in which it has weight, and if
nearly all of that is on a few images, it tells about those. So a site looks at *every* linear
combination of what was answered and is asked for now, and answers if each is about enough images.

The number of images that a combination with weights c is about is Kish's effective number,
(sum |c|)^2 / sum c^2. Among combinations of given signs it is smallest where as many weights vanish
as can (a convex function on a polytope is largest at a vertex): finitely many, and all are tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations, islice
from math import comb
from pathlib import Path

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.errors import TooFewImagesError
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.policy import Policy

# More vertices than this are not tried, and the groups are refused.
_MOST_VERTICES = 200_000
_BATCH = 4096
_ZERO = 1e-9
# Sums that differ by less are the same but for rounding; by more they differ. In between, weights
# were changed by a hair, which would tell about the images that they were changed for.
_SAME, _DIFFERENT = 1e-13, 1e-6


def smallest_effective_number(weights: Float64Array) -> float:
    """Return the smallest effective number of images of any combination of weighted sums.

    Parameters
    ----------
    weights : (M, N)
        Of N images in M sums.

    Returns
    -------
    float
        0 if there are too many vertices to tell, or if weights of two sums differ by a hair;
        infinity if all weights are 0.
    """
    columns, sizes = _cells(weights)
    if not columns.size:
        return np.inf
    _, values, rows = np.linalg.svd(columns, full_matrices=False)
    values = values / values[0]
    if ((values > _SAME) & (values < _DIFFERENT)).any():
        return 0.0
    rows = rows[values >= _DIFFERENT]
    rank, n_cells = rows.shape
    if comb(n_cells, rank - 1) > _MOST_VERTICES:
        return 0.0
    smallest = np.inf
    vertices = combinations(range(n_cells), rank - 1)
    while batch := list(islice(vertices, _BATCH)):
        smallest = min(smallest, _smallest_at(rows, sizes, np.array(batch, dtype=np.intp)))
    return float(smallest)


def _cells(weights: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the different columns of weights that are not 0, and how many images have each."""
    scale = np.abs(weights).max(axis=1, keepdims=True, initial=0.0)
    scaled = weights[scale[:, 0] > 0] / scale[scale[:, 0] > 0]
    columns, sizes = np.unique(scaled, axis=1, return_counts=True)
    is_used = (columns != 0).any(axis=0)
    return columns[:, is_used], sizes[is_used].astype(np.float64)


def _smallest_at(rows: Float64Array, sizes: Float64Array, vanishing: np.ndarray) -> float:
    """Return the smallest effective number of combinations that vanish in some cells each."""
    # The combination a of rows with a'rows = 0 in rank - 1 cells is a null vector of those columns.
    chosen = rows[:, vanishing].transpose(1, 2, 0)  # (vertices, rank - 1, rank)
    if chosen.shape[1]:
        _, values, right = np.linalg.svd(chosen)
        is_vertex = values[:, -1] > _ZERO
        coefficients = right[is_vertex, -1]
    else:
        coefficients = np.ones((1, 1))
    weights = np.abs(coefficients @ rows)
    weights[weights < _ZERO * weights.max(initial=0.0)] = 0
    squares = np.square(weights) @ sizes
    numbers = np.square(weights @ sizes)[squares > 0] / squares[squares > 0]
    return float(numbers.min(initial=np.inf))


class AnsweredGroups:
    """The groups that a site has answered for, in a file of JSON lines.

    All images together count as answered from the start: a fit tells the sums of their latents.

    Parameters
    ----------
    path : Path
        Read if it exists: what was answered stays answered after a restart. It holds which images
        were in which group, by digests of their identities, and stays at the site.
    identities : N texts or numbers
        One for each image: images that came or went between two analyses are told apart.
    policy : Policy
        Sets the smallest effective number of images.
    """

    def __init__(self, path: Path, identities: Sequence[int | str], policy: Policy) -> None:
        self._lines = JsonLines(path, "the record of analyses")
        self._names = [_digest(identity) for identity in identities]
        self._policy = policy
        self._answered: list[dict[str, float]] = [
            dict(zip(line["images"], line["weights"], strict=True))
            for line in self._lines.read()
            if "images" in line
        ]

    def check(self, shares: Float64Array) -> None:
        """Raise a TooFewImagesError if new groups, with those answered, would single out images.

        Parameters
        ----------
        shares : (groups, N)
            Weight of every image in every group, 0 for those that are not in it.
        """
        asked = [self._by_name(share) for share in shares]
        everybody = dict.fromkeys(self._names, 1.0)
        sums = [everybody, *self._answered, *asked]
        names = sorted(set().union(*sums))
        weights = np.array([[one.get(name, 0.0) for name in names] for one in sums])
        if smallest_effective_number(weights) < self._policy.minimum_images - 1e-6:
            raise TooFewImagesError(
                "these groups, with all images and with the groups answered before, would tell "
                f"about fewer images than the {self._policy.minimum_images} that an answer must "
                "cover"
            )

    def record(self, shares: Float64Array) -> None:
        """Record that groups are answered, before the answer leaves. Known ones are not repeated.

        Parameters
        ----------
        shares : (groups, N)
            As for `check`.
        """
        for share in shares:
            weights = self._by_name(share)
            if weights not in self._answered:
                self._lines.append(images=list(weights), weights=list(weights.values()))
                self._answered.append(weights)

    def _by_name(self, share: Float64Array) -> dict[str, float]:
        return {
            name: float(weight)
            for name, weight in zip(self._names, share, strict=True)
            if weight != 0
        }


def _digest(identity: int | str) -> str:
    return hashlib.blake2b(str(identity).encode(), digest_size=8).hexdigest()
