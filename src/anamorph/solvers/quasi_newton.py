"""Limited-memory quasi-Newton directions (L-BFGS) for many fields at once, preconditioned.

The last few steps s and the changes y of the gradient along them correct a metric that is only
known by its solves: see Nocedal and Wright, "Numerical Optimization", algorithm 7.4. Each field of
a batch has pairs and a scale of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array, IntArray

_LEAST_CURVATURE = 1e-6  # cosine between step and change below which a pair is left out
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-3, 3.0  # of the metric's inverse


class PairMemory:
    """Pairs of steps and changes of the gradient, (N, ...) each.

    Parameters
    ----------
    n_pairs : int
        How many to remember.
    """

    def __init__(self, n_pairs: int) -> None:
        self._pairs: deque[tuple[Array, Array, Float64Array]] = deque(maxlen=n_pairs)

    def learn(self, step: Array, change: Array) -> None:
        """Remember steps (N, ...), and by how much the gradient changed along them.

        Where the gradient changed against the step, or hardly, there is nothing to learn.
        """
        xp = array_namespace(step)
        product = dot(step, change)
        least = _LEAST_CURVATURE * np.sqrt(dot(step, step) * dot(change, change))
        is_known = product > least
        inverse: Float64Array = xp.where(is_known, 1 / xp.where(is_known, product, 1), 0)
        self._pairs.append((step, change, inverse))

    def keep(self, which: IntArray) -> None:
        """Forget all fields of the batch but some."""
        for number, (step, change, inverse) in enumerate(self._pairs):
            self._pairs[number] = step[which], change[which], inverse[which]

    def direction(
        self,
        gradient: Array,
        solve: Callable[[Array], Array],
        multiply: Callable[[Array], Array],
    ) -> Array:
        """Return what to subtract, (N, ...): the inverse of the corrected metric times gradients.

        Parameters
        ----------
        gradient : (N, ...)
        solve : callable
            Multiplies fields by the inverse of the metric, about.
        multiply : callable
            Multiplies fields by the metric.
        """
        rest, shares = gradient.copy(), []
        for step, change, inverse in reversed(self._pairs):
            shares.append(inverse * dot(step, rest))
            rest -= each(shares[-1], rest) * change
        found = solve(rest)
        if self._pairs:
            found = each(self._scale(multiply), found) * found
        for (step, change, inverse), share in zip(self._pairs, reversed(shares), strict=True):
            found += each(share - inverse * dot(change, found), found) * step
        return found

    def _scale(self, multiply: Callable[[Array], Array]) -> Float64Array:
        """Return by how much the metric overestimates steps, from the newest pair that tells."""
        xp = array_namespace(self._pairs[-1][0])
        step, _, inverse = self._pairs[-1]
        ratio = np.clip(dot(step, multiply(step)) * inverse, _SMALLEST_SCALE, _LARGEST_SCALE)
        scale: Float64Array = xp.where(inverse > 0, ratio, 1.0)
        return scale


def dot(one: Array, other: Array) -> Float64Array:
    """Return the products of fields (N, ...) with others, (N,)."""
    axes = tuple(range(1, one.ndim))
    product: Float64Array = (one * other).sum(axis=axes, dtype=np.float64)
    return product


def each(numbers: Float64Array, fields: Array) -> Array:
    """Return numbers (N,) in a shape that multiplies fields (N, ...), of their type."""
    shaped: Array = numbers.astype(fields.dtype).reshape(-1, *(1,) * (fields.ndim - 1))
    return shaped
