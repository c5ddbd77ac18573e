"""Chain rules: from derivatives with respect to the appearance to those of shape and latents.

Moving the velocity by dv changes the warped image by -grad(a) . dv. With D the gradients of the
appearance a by voxel, g and H the pushed derivatives of an image, this gives g^v = -D'g and
H^v = D'HD (Algorithm 6), and B = W^a - sum_i (d_i a) W^v_i (Algorithm 7). Each formula adds one
term of a sum over channels or axes.
"""

from __future__ import annotations

from anamorph.kernels.compile import formula


@formula
def with_gradient(total: float, g: float, slope: float) -> float:
    """Return a component of g^v = -D'g with the term of one channel."""
    return total - g * slope


@formula
def with_curvature(total: float, h: float, slope_i: float, slope_j: float) -> float:
    """Return an entry (i, j) of D'HD with the term of entry (c, c) of H: slopes of channel c."""
    return total + h * slope_i * slope_j


@formula
def with_mixed_curvature(
    total: float, h: float, b_i: float, c_i: float, b_j: float, c_j: float
) -> float:
    """Return an entry (i, j) of D'HD with the terms of entries (b, c) and (c, b) of H."""
    return total + h * (b_i * c_j + c_i * b_j)


@formula
def without_motion(effect: float, slope: float, motion: float) -> float:
    """Return an entry of B with the term of one axis: the motion of the image's gradient."""
    return effect - slope * motion
