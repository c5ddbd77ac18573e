"""Fields on periodic grids: penalties, warps and geodesic shooting. Knows no images, no model."""

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
