"""Differences between neighbours on a grid of spacing one."""

from __future__ import annotations

from anamorph.kernels.compile import formula


@formula
def central_difference(before: float, after: float) -> float:
    """Return the derivative at the voxel between two."""
    return type(after)(0.5) * (after - before)


@formula
def second_difference(before: float, here: float, after: float) -> float:
    """Return minus the second derivative, as a difference of differences.

    One wide stencil would cancel large numbers: in float32, w0 would be lost.
    """
    return (here - after) + (here - before)


@formula
def mixed_difference(
    both_after: float, both_before: float, first_after: float, second_after: float
) -> float:
    """Return four times the derivative along two axes, from the four voxels at the corners.

    `first_after` is after the voxel along the first axis and before it along the second.
    """
    return (both_after - first_after) + (both_before - second_after)
