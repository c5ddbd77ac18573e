"""Fields on periodic grids: penalties L and their Green's functions, warps, geodesic shooting."""

from anamorph.geometry.inverses import corner_determinants, invert
from anamorph.geometry.operators import momentum, velocity
from anamorph.geometry.shooting import shoot, shoot_both
from anamorph.geometry.warps import compose, jacobian_determinant, pull, push

__all__ = [
    "compose",
    "corner_determinants",
    "invert",
    "jacobian_determinant",
    "momentum",
    "pull",
    "push",
    "shoot",
    "shoot_both",
    "velocity",
]
