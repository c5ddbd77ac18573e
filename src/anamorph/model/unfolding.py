"""Residual velocities that are smoothed where their warps fold, or nearly do.

For the last of the likelihood, residual warps may press places to almost nothing, or let cells of
the grid turn over, which no label or Jacobian survives. A warp or its inverse folds where its
determinant is below a tenth at a voxel, or not positive at a corner of a cell, between which warps
are linear along each axis: without the latter, warps of a plane are one-to-one. The residual
velocity is smoothed around such places of the template, more widely after every other round, until
there are none or rounds come to an end: modes that press a place by themselves keep it pressed.
Everywhere else velocities stay as they are.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter, maximum_filter

from anamorph.arrays.devices import array_namespace, beside, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array
from anamorph.geometry import corner_determinants, jacobian_determinant, shoot, shoot_both
from anamorph.geometry.inverses import polished_inverse
from anamorph.model.generator import Generator
from anamorph.model.settings import Settings

_LEAST_DETERMINANT = 0.1  # of psi and of its inverse, by central differences at voxels
_LEAST_AT_CORNERS = 0.01  # positive but for rounding
_WIDTH, _EDGE = 1.0, 0.5  # voxels, standard deviation of what smooths velocities, and its edges
_SHARE = 0.75  # of the smoothed velocity that replaces the rough one
_MOST_ROUNDS, _ROUNDS_BEFORE_WIDER = 20, 2


def unfolded(generator: Generator, latents: Float64Array, velocity: Array) -> Array:
    """Return residual velocities (N, d, *space), smoothed where their warps would fold.

    Those whose warps do not fold are returned as they are. What resists all rounds stays as smooth
    as it became, and folds.

    Parameters
    ----------
    generator : Generator
        Without residuals.
    latents : (N, K)
        z.
    velocity : (N, d, *space)
        r.
    """
    smooth, modes = velocity.copy(), generator.velocity(latents)
    which = array_namespace(velocity).arange(len(velocity))
    inverses: Array | None = None
    for number in range(_MOST_ROUNDS):
        total = array_namespace(velocity).ascontiguousarray(modes[which] + smooth[which])
        warps, inverses = _both_warps(total, generator.settings, inverses)
        folds = _folded_places(to_host(warps), to_host(inverses))
        found = np.flatnonzero(folds.reshape(len(folds), -1).any(axis=1))
        if not len(found):
            break
        kept = beside(which, found)
        which, inverses = which[kept], inverses[kept]
        rough = to_host(smooth[which])
        step = _towards_smooth(rough, folds[found], number // _ROUNDS_BEFORE_WIDER)
        smooth[which] += beside(smooth, step)
    return smooth


def _both_warps(velocity: Array, settings: Settings, inverses: Array | None) -> tuple[Array, Array]:
    """Return warps and their inverses, which are near those of the round before, if there are."""
    arguments = settings.shape_penalty, settings.voxel_size, settings.n_steps
    if inverses is None:
        return shoot_both(velocity, *arguments)
    warps = shoot(velocity, *arguments)
    return warps, polished_inverse(warps, inverses)


def _folded_places(warps: Array, inverses: Array) -> BoolArray:
    """Return where in the template warps (N, d, *space) or their inverses fold, (N, *space)."""
    folded = _folds(inverses)
    for n, *voxel in np.argwhere(_folds(warps)):
        place = np.rint(voxel + warps[(n, slice(None), *voxel)]).astype(int)
        folded[(n, *(place % folded.shape[1:]))] = True
    return folded


def _folds(warps: Array) -> BoolArray:
    """Return where warps (N, d, *space) press voxels together, or turn cells over, (N, *space)."""
    is_upright = corner_determinants(warps).min(axis=1) >= _LEAST_AT_CORNERS
    is_wide = jacobian_determinant(warps) >= _LEAST_DETERMINANT
    folds: BoolArray = ~(is_upright & is_wide)  # also where a warp went too far to be a number
    return folds


def _towards_smooth(velocity: Array, places: BoolArray, radius: int) -> Array:
    """Return what smoothing changes of velocities (n, d, *space) around places (n, *space)."""
    axes, edges = ((width,) * (places.ndim - 1) for width in (_WIDTH, _EDGE))
    size = (1, *(2 * radius + 1 for _ in axes))
    around = maximum_filter(places.astype(np.float32), size, mode="wrap")
    weight = _SHARE * gaussian_filter(around, (0, *edges), mode="wrap")
    smooth = gaussian_filter(velocity, (0, 0, *axes), mode="wrap")
    change: Array = (weight[:, None] * (smooth - velocity)).astype(np.float32)
    return change
