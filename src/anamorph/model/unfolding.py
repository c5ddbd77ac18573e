"""Warps that take as many steps of shooting as they need not to fold.

Geodesics never fold, but geodesic shooting takes finite steps, and few of them fold large or rough
velocities: the Jacobian determinant of psi is not positive somewhere. More steps cure most folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from anamorph.arrays.devices import beside, to_host
from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.geometry import jacobian_determinant
from anamorph.model.generator import Generator

_MORE_STEPS = (2, 4, 8)  # times those of the model


class UnfoldingGenerator(Generator):
    """A generator that takes more steps for the warps which fold in fewer, where that cures them.

    It is meant for drawing. Fits and encoding differentiate every step, and use one number.
    """

    @classmethod
    def of(cls, generator: Generator) -> UnfoldingGenerator:
        """Return a generator with the same settings and parameters."""
        return cls(generator.settings, generator.parameters)

    def displacement(self, latents: Float64Array) -> Array | None:
        """Return the displacement of psi, (N, d, *space); None if nothing moves."""
        displacement = super().displacement(latents)
        if displacement is None:
            return None
        folded = np.flatnonzero(count_folds(displacement)[0])
        for finer in finer_generators(self):
            if not len(folded):
                break
            trial = finer.displacement(latents[beside(latents, folded)])
            assert trial is not None
            are_cured = count_folds(trial)[0] == 0
            displacement[beside(latents, folded[are_cured])] = trial[beside(latents, are_cured)]
            folded = folded[~are_cured]
        return displacement


def finer_generators(generator: Generator) -> Iterator[Generator]:
    """Yield the same generator with more steps of shooting, and with more still."""
    settings = generator.settings
    for factor in _MORE_STEPS:
        yield Generator(replace(settings, n_steps=factor * settings.n_steps), generator.parameters)


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
