"""One Euler step of geodesic shooting (Algorithm 4), id + s with s = scale * v.

Shooting carries the momentum u along: u becomes push(D(id - v/T)' u, id + v/T).
"""

from __future__ import annotations

from anamorph.kernels.compile import formula


@formula
def neighbour_weight(step: float, offset: int) -> float:
    """Return the interpolation weight of a neighbour, for a step of at most one voxel.

    Linear interpolation at x + s with abs(s) <= 1 involves x - 1, x and x + 1 only: the weight of
    x + o is max(0, 1 - abs(s - o)). Along several axes, weights multiply.

    Parameters
    ----------
    step : float
        s, in voxels, along one axis.
    offset : -1, 0 or 1
        o.
    """
    one, zero = type(step)(1), type(step)(0)
    if offset == 0:
        return one - abs(step)
    return max(zero, step) if offset == 1 else max(zero, -step)


@formula
def twice_derivative(before: float, after: float, momentum: float) -> float:
    """Return 2 (d_j v_i) u_i, from v_i on both sides of a voxel along axis j."""
    return (after - before) * momentum


@formula
def turned(momentum: float, half_scale: float, twice_sum: float) -> float:
    """Return u_j + scale sum_i (d_j v_i) u_i: component j of D(id + scale v)' u.

    `twice_sum` is the sum over i of `twice_derivative`, or part of it; `half_scale` makes up for
    the factor.
    """
    return momentum + half_scale * twice_sum


@formula
def twice_divergence(
    before: float, after: float, momentum_before: float, momentum_after: float
) -> float:
    """Return 2 d_j (u_i m_j), from u_i and m_j on both sides of a voxel along axis j."""
    return after * momentum_after - before * momentum_before
