"""Small symmetric matrices, packed: the diagonal first, then row by row above it.

For three rows: 11, 22, 33, 12, 13, 23.
"""

from __future__ import annotations

from anamorph.kernels.compile import formula


@formula
def packed_place(i: int, j: int, size: int) -> int:
    """Return where entry (i, j) of a packed matrix of `size` rows is."""
    if i == j:
        return i
    first, second = min(i, j), max(i, j)
    return size + first * size - ((first * (first + 1)) >> 1) + (second - first - 1)


@formula
def multiplied_by_2x2(
    s_11: float, s_22: float, s_12: float, a: float, b: float
) -> tuple[float, float]:
    """Return S (a, b)': a symbol of the operator L, or of its inverse G, times two components."""
    return s_11 * a + s_12 * b, s_12 * a + s_22 * b


@formula
def multiplied_by_3x3(
    s_11: float, s_22: float, s_33: float, s_12: float, s_13: float, s_23: float,
    a: float, b: float, c: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Return S (a, b, c)': the same for three components."""
    return (
        s_11 * a + s_12 * b + s_13 * c,
        s_12 * a + s_22 * b + s_23 * c,
        s_13 * a + s_23 * b + s_33 * c,
    )


# Inversion by symmetric sweeps (Gauss-Jordan): sweeping pivot k replaces entry (i, j), i and j not
# k, then entries (i, k), then (k, k). Once every pivot is swept, the matrix is minus its inverse.


@formula
def swept_entry(entry: float, left: float, right: float, pivot: float) -> float:
    """Return entry (i, j) after the sweep of pivot k; left and right are (i, k) and (k, j)."""
    return entry - left * right / pivot


@formula
def swept_neighbour(entry: float, pivot: float) -> float:
    """Return entry (i, k) after the sweep of pivot k."""
    return entry / pivot


@formula
def swept_pivot(pivot: float) -> float:
    """Return entry (k, k) after its sweep."""
    return type(pivot)(-1) / pivot


@formula
def relaxed_step(step: float, descent: float, inertia: float, rate: float) -> float:
    """Return the next step of block-Jacobi relaxation with Chebyshev acceleration.

    `descent` is the inverse of the diagonal block times the residual.
    """
    return inertia * step + rate * descent
