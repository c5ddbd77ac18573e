"""Geodesics shot in as many steps as they need not to fold.

Geodesics never fold, but geodesic shooting takes finite steps, and few of them fold large or rough
velocities: the Jacobian determinant of psi is not positive somewhere. More steps cure most folds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anamorph.arrays.devices import beside, to_host
from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.geometry.shooting import shoot
from anamorph.geometry.warps import jacobian_determinant

#: Times as many steps as were asked for, to be tried in turn.
MORE_STEPS = (2, 4, 8)


def shoot_unfolded(
    v: Array, penalty: Sequence[float], voxel_size: Sequence[float], n_steps: int
) -> Array:
    """Return what `shoot` does, in more steps for the fields that fold, where that cures them.

    Parameters
    ----------
    v : array of shape (N, d, *space)
        Initial velocities in voxels.
    penalty : 5 numbers
    voxel_size : d numbers
    n_steps : int
        The fewest steps.

    Returns
    -------
    array of the shape of v
        Displacements in voxels. What folds however many steps are taken is shot in the fewest.
    """
    displacement = shoot(v, penalty, voxel_size, n_steps)
    folded = np.flatnonzero(count_folds(displacement)[0])
    for factor in MORE_STEPS:
        if not len(folded):
            break
        trial = shoot(v[beside(v, folded)], penalty, voxel_size, factor * n_steps)
        are_cured = count_folds(trial)[0] == 0
        displacement[beside(v, folded[are_cured])] = trial[beside(v, np.flatnonzero(are_cured))]
        folded = folded[~are_cured]
    return displacement


def count_folds(displacement: Array) -> tuple[IntArray, Float64Array]:
    """Return how many determinants of each warp are not positive, (N,), and the smallest, (N,).

    Parameters
    ----------
    displacement : (N, d, *space)
        Of psi, in voxels, in memory or on a GPU. What is not finite counts as folded.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # far beyond all that is a warp
        determinant = jacobian_determinant(displacement).reshape(len(displacement), -1)
    is_sound = (determinant > 0) & np.isfinite(determinant)
    return to_host((~is_sound).sum(axis=1)), to_host(determinant.min(axis=1))
