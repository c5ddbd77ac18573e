"""Fields on periodic grids: penalties L and their Green's functions, warps, geodesic shooting."""

from anamorph.geometry.operators import momentum, velocity
from anamorph.geometry.shooting import shoot
from anamorph.geometry.warps import compose, invert, jacobian_determinant, pull, push

__all__ = [
    "compose",
    "invert",
    "jacobian_determinant",
    "momentum",
    "pull",
    "push",
    "shoot",
    "velocity",
]
