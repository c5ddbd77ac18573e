"""Residual warps that nearly fold are found again under a firmer prior, image by image.

One precision tau serves all images. A few of them buy the last of their likelihood with warps that
press a voxel to almost nothing, which no label or Jacobian survives. These images continue from
where they are with twice the precision, and twice that, until nothing is pressed so far.
"""

from __future__ import annotations

import numpy as np

from anamorph.arrays.devices import array_namespace, beside, to_host
from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.geometry import jacobian_determinant, shoot_both
from anamorph.model.generator import Generator
from anamorph.model.residuals import improve_residuals

_LEAST_DETERMINANT = 0.1  # of psi and of its inverse, at voxels
_FIRMER = 2.0
_MOST_ROUNDS, _N_STEPS = 4, 12


def firm_residuals(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    velocity: Array,
    precision: float,
) -> Array:
    """Return residual velocities (N, d, *space) of warps that keep away from folding.

    What four rounds do not cure, as folds of the modes themselves, stays as the last one left it.

    Parameters
    ----------
    generator : Generator
        Without residuals, on the device of the images.
    images : (N, C, *space)
    latents : (N, K)
    velocity : (N, d, *space)
        r as it was found with the precision tau.
    precision : float
        tau.
    """
    firm, which = velocity.copy(), array_namespace(velocity).arange(len(velocity))
    for _ in range(_MOST_ROUNDS):
        which = which[_nearly_fold(generator, latents[which], firm[which])]
        if not len(which):
            break
        precision *= _FIRMER
        firm[which] = improve_residuals(
            generator.only(which), images[which], latents[which], firm[which], precision, _N_STEPS
        ).velocity
    return firm


def _nearly_fold(generator: Generator, latents: Float64Array, velocity: Array) -> IntArray:
    """Return the numbers of the warps that press a voxel too far, there or back."""
    s = generator.settings
    total = array_namespace(velocity).ascontiguousarray(generator.velocity(latents) + velocity)
    both = shoot_both(total, s.shape_penalty, s.voxel_size, s.n_steps)
    smallest = np.min(
        [jacobian_determinant(to_host(one)).reshape(len(velocity), -1).min(axis=1) for one in both],
        axis=0,
    )
    numbers: IntArray = beside(velocity, np.flatnonzero(smallest < _LEAST_DETERMINANT))
    return numbers
