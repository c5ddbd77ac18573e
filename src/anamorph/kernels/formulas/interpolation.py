"""Linear interpolation between grid points, and its transpose: the weights of pull and push.

Multigrid passes fields between grids with the same weights, along one axis at a time.
"""

from __future__ import annotations

from anamorph.kernels.compile import formula


@formula
def between(a: float, b: float, fraction: float) -> float:
    """Return the value at `fraction` of the way from a to b."""
    return a + fraction * (b - a)


@formula
def between_four(a: float, b: float, c: float, d: float, fy: float, fx: float) -> float:
    """Return the value inside the cell a b (upper corners), c d (lower corners)."""
    return between(between(a, b, fx), between(c, d, fx), fy)


@formula
def slopes_between_four(
    a: float, b: float, c: float, d: float, fy: float, fx: float
) -> tuple[float, float]:
    """Return the derivatives of `between_four` with respect to fy and fx."""
    return between(c - a, d - b, fx), between(b - a, d - c, fy)


@formula
def shared(value: float, fraction: float) -> tuple[float, float]:
    """Return what the points before and after receive of a value: the transpose of `between`."""
    after = fraction * value
    return value - after, after


@formula
def shared_by_four(value: float, fy: float, fx: float) -> tuple[float, float, float, float]:
    """Return what the corners a, b, c, d receive of a value: the transpose of `between_four`."""
    above, below = shared(value, fy)
    a, b = shared(above, fx)
    c, d = shared(below, fx)
    return a, b, c, d
