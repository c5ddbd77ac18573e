"""Limited-memory quasi-Newton directions (L-BFGS) for many fields at once, preconditioned.

The last few steps s and the changes y of the gradient along them correct a metric that is only
known by its solves: see Nocedal and Wright, "Numerical Optimization", algorithm 7.4. Each field of
a batch has pairs and a scale of its own.
"""

from __future__ import annotations

from collections import deque
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
    """Pairs of steps and changes of the gradient, (N, ...) each.

    Parameters
    ----------
    n_pairs : int
        How many to remember.
    n_fields : int
        N.
    """

    def __init__(self, n_pairs: int, n_fields: int) -> None:
        self._n_fields = n_fields
        self._pairs: deque[Pair] = deque(maxlen=n_pairs)

    def only(self, which: IntArray) -> PairMemory:
        """Return what is remembered of some of the fields."""
        few = PairMemory(cast(int, self._pairs.maxlen), len(which))
        few._pairs.extend(_gathered(pair, which) for pair in self._pairs)
        return few

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
        if len(which) < self._n_fields:
            step = _scattered(step, which, self._n_fields)
            change = _scattered(change, which, self._n_fields)
            inverse = _scattered(inverse, which, self._n_fields).astype(np.float64)
        self._pairs.append((step, change, inverse))

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
        pairs = [_gathered(pair, which) for pair in self._pairs]
        rest, shares = gradient.copy(), []
        for step, change, inverse in reversed(pairs):
            shares.append(inverse * dot(step, rest))
            rest -= each(shares[-1], rest) * change
        found = solve(rest)
        if pairs:
            found = each(_scale(pairs[-1], curvature), found) * found
        for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
            found += each(share - inverse * dot(change, found), found) * step
        return found


def _gathered(pair: Pair, which: IntArray) -> Pair:
    """Return the pair of some fields."""
    if len(which) == len(pair[2]):
        return pair
    step, change, inverse = pair
    return step[which], change[which], inverse[which]


def _scattered(part: Array, which: IntArray, n_fields: int) -> Array:
    """Return what is known of some fields (n, ...) among all, (N, ...): 0 where it is not."""
    whole = np.zeros_like(part, shape=(n_fields, *part.shape[1:]))
    whole[which] = part
    return whole


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
