"""Velocities that are smoothed where their warps fold, or nearly do, until they do not.

For the last of the likelihood, residual warps may press places to almost nothing, or let cells of
the grid turn over, which no label or Jacobian survives. A place is pressed where the determinant of
the warp or of its inverse is below a tenth at a voxel, and folded where that of the warp is not
positive at a corner of a cell, between which warps are linear along each axis: a warp of a plane
is then one-to-one. Velocities are smoothed around such places of the template, more widely after
every few rounds; everywhere else they stay as they are.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter, maximum_filter

from anamorph.arrays.devices import array_namespace, beside, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array
from anamorph.geometry import corner_determinants, jacobian_determinant, shoot, shoot_both
from anamorph.model.generator import Generator
from anamorph.model.settings import Settings

_LEAST_DETERMINANT = 0.1  # of psi and of its inverse, by central differences at voxels
_LEAST_AT_CORNERS = 0.01  # positive but for rounding
_WIDTH, _EDGE = 1.0, 0.5  # voxels, standard deviation of what smooths velocities, and its edges
_SHARE = 0.5  # of the smoothed velocity that replaces the rough one
_MOST_ROUNDS, _ROUNDS_BEFORE_WIDER = 24, 3


def unfolded(generator: Generator, latents: Float64Array, velocity: Array) -> Array:
    """Return residual velocities (N, d, *space) whose warps do not fold.

    Those whose warps do not fold are returned as they are. What resists stays as smooth as it
    became.

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
    for number in range(_MOST_ROUNDS):
        total = array_namespace(velocity).ascontiguousarray(modes[which] + smooth[which])
        folds = _folded_places(total, generator.settings)
        found = np.flatnonzero(folds.reshape(len(folds), -1).any(axis=1))
        if not len(found):
            break
        which, rough = which[beside(which, found)], to_host(total)[found]
        step = _towards_smooth(rough, folds[found], number // _ROUNDS_BEFORE_WIDER)
        smooth[which] += beside(smooth, step)
    return smooth


def _folded_places(velocity: Array, settings: Settings) -> BoolArray:
    """Return where in the template warps of velocities (N, d, *space) fold, (N, *space).

    Where a warp does not, its inverse is looked at, which takes longer to find.
    """
    arguments = settings.shape_penalty, settings.voxel_size, settings.n_steps
    warps = to_host(shoot(velocity, *arguments))
    folds: BoolArray = corner_determinants(warps).min(axis=1) < _LEAST_AT_CORNERS
    folds |= _are_pressed(warps)
    folded = np.zeros_like(folds)
    for n, *voxel in np.argwhere(folds):
        place = np.rint(voxel + warps[(n, slice(None), *voxel)]).astype(int)
        folded[(n, *(place % folded.shape[1:]))] = True
    rest = np.flatnonzero(~folds.reshape(len(folds), -1).any(axis=1))
    if len(rest):
        some = velocity[beside(velocity, rest, np.intp)]
        folded[rest] = _are_pressed(to_host(shoot_both(some, *arguments)[1]))
    return folded


def _are_pressed(warps: Array) -> BoolArray:
    is_pressed: BoolArray = jacobian_determinant(warps) < _LEAST_DETERMINANT
    return is_pressed


def _towards_smooth(velocity: Array, places: BoolArray, radius: int) -> Array:
    """Return what smoothing changes of velocities (n, d, *space) around places (n, *space)."""
    axes, edges = ((width,) * (places.ndim - 1) for width in (_WIDTH, _EDGE))
    size = (1, *(2 * radius + 1 for _ in axes))
    around = maximum_filter(places.astype(np.float32), size, mode="wrap")
    weight = _SHARE * gaussian_filter(around, (0, *edges), mode="wrap")
    smooth = gaussian_filter(velocity, (0, 0, *axes), mode="wrap")
    change: Array = (weight[:, None] * (smooth - velocity)).astype(np.float32)
    return change
