"""Limited-memory quasi-Newton directions (L-BFGS) for many fields at once, preconditioned.

The last few steps s and the changes y of the gradient along them correct a metric that is only
known by its solves: see Nocedal and Wright, "Numerical Optimization", algorithm 7.4. Each field of
a batch has pairs and a scale of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array, IntArray

#: A step, the change of the gradient along it, and one over their product, of all fields.
Pair = tuple[Array, Array, Float64Array]

_LEAST_CURVATURE = 1e-6  # cosine between step and change below which a pair is left out
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-3, 3.0  # of the metric's inverse


class PairMemory:
    """The last pairs of steps and changes of the gradient of each of N fields.

    Each field fills a ring of its own: one that rests while others take steps forgets nothing, and
    continues as it would have done alone.

    Parameters
    ----------
    n_pairs : int
        How many to remember.
    n_fields : int
        N.
    """

    def __init__(self, n_pairs: int, n_fields: int) -> None:
        self._n_pairs, self._n_fields = n_pairs, n_fields
        self._most_known = 0  # pairs of a field
        self._rings: Pair | None = None  # (n_pairs, N, ...) each, 0 where nothing is known yet
        self._n_learnt: IntArray | None = None  # (N,)

    def learn(self, step: Array, change: Array, which: IntArray) -> None:
        """Remember steps (n, ...) of some fields, and by how much their gradients changed.

        Where the gradient changed against the step, or hardly, there is nothing to learn.

        Parameters
        ----------
        step, change : (n, ...)
        which : (n,) integers
            The fields that took a step.
        """
        xp = array_namespace(step)
        product = dot(step, change)
        least = _LEAST_CURVATURE * np.sqrt(dot(step, step) * dot(change, change))
        is_known = product > least
        inverse: Float64Array = xp.where(is_known, 1 / xp.where(is_known, product, 1), 0)
        if self._rings is None or self._n_learnt is None:
            shape = (self._n_pairs, self._n_fields, *step.shape[1:])
            empty = (xp.zeros(shape, field.dtype) for field in (step, change))
            self._rings = (*empty, xp.zeros(shape[:2], np.float64))
            self._n_learnt = xp.zeros(self._n_fields, np.intp)
        place = self._n_learnt[which] % self._n_pairs
        for ring, newest in zip(self._rings, (step, change, inverse), strict=True):
            ring[place, which] = newest
        self._n_learnt[which] += 1
        self._most_known = min(self._most_known + 1, self._n_pairs)

    def direction(
        self,
        gradient: Array,
        solve: Callable[[Array], Array],
        curvature: Callable[[Array], Float64Array],
        which: IntArray,
    ) -> Array:
        """Return what to subtract, (n, ...): the inverse of the corrected metric times gradients.

        Parameters
        ----------
        gradient : (n, ...)
        solve : callable
            Multiplies fields by the inverse of the metric, about.
        curvature : callable
            Returns s'Ms, (n,), of the newest step s, where M is the metric.
        which : (n,) integers
            The fields whose gradients these are.
        """
        pairs = [self._pair(age, which) for age in range(self._most_known)]
        rest, shares = gradient.copy(), []
        for step, change, inverse in pairs:
            shares.append(inverse * dot(step, rest))
            rest -= each(shares[-1], rest) * change
        found = solve(rest)
        if pairs:
            found = each(_scale(pairs[0], curvature), found) * found
        for (step, change, inverse), share in zip(reversed(pairs), reversed(shares), strict=True):
            found += each(share - inverse * dot(change, found), found) * step
        return found

    def _pair(self, age: int, which: IntArray) -> Pair:
        """Return the newest pair of some fields, at age 0, or one that is so many steps older."""
        steps, changes, inverses = cast(Pair, self._rings)
        place = (cast(IntArray, self._n_learnt)[which] - 1 - age) % self._n_pairs
        return steps[place, which], changes[place, which], inverses[place, which]


def _scale(pair: Pair, curvature: Callable[[Array], Float64Array]) -> Float64Array:
    """Return by how much the metric overestimates steps, from the newest pair that tells."""
    step, _, inverse = pair
    xp = array_namespace(step)
    ratio = np.clip(curvature(step) * inverse, _SMALLEST_SCALE, _LARGEST_SCALE)
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
