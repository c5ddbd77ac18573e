"""Residual warps of new images, found together with their latents.

Latents that were found without a residual warp explain by appearance what is only out of place. So
both are found in turns: steps of the residual velocity r (`model.residuals`), then of the latents z
given r. At first images count for little: warps bring together what is large, and do not get caught
in details on the way. All turns but the last shoot in half as many steps, but not in fewer than
four; where that is no quicker, there are but two turns. In the end, velocities whose warps fold are
smoothed where they do (`model.unfolding`); what lies around settles in a few more steps, and what
folds then is smoothed again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.encoding import encode
from anamorph.model.generator import Generator
from anamorph.model.posing import PosedGenerator
from anamorph.model.residuals import ResidualDescent
from anamorph.model.unfolding import unfolded


@dataclass(frozen=True)
class Turn:
    """Steps of residual velocities, and of latents before them.

    Attributes
    ----------
    trust : float
        Weight of the log-likelihood.
    n_steps : int
        Of residual velocities, at most.
    is_quick : bool
        Whether geodesics are shot in fewer steps.
    """

    trust: float
    n_steps: int
    is_quick: bool = True


_TURNS = (Turn(0.1, 10), Turn(0.3, 10), Turn(1.0, 10), Turn(1.0, 9, is_quick=False))
_TURNS_OF_SHORT_PATHS = (Turn(0.1, 6), Turn(1.0, 8, is_quick=False))
_SETTLING_STEPS = 4
_FASTER, _FEWEST_STEPS = 2, 4  # quick turns shoot in so many times fewer steps, but in so many
_MOST_SHOOTINGS = 6  # for the latents of a turn


def bend(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    precision: float,
    poses: Float64Array | None = None,
) -> tuple[Float64Array, Array]:
    """Return latents (N, K) and residual velocities (N, d, *space) of images.

    Parameters
    ----------
    generator : Generator
        Without poses and residuals, with the noise that images with residual warps have.
    images : (N, C, *space)
        f, NaN where missing.
    latents : (N, K)
        z, as they are without residual warps.
    precision : float
        tau.
    poses : (N, P), optional
        None by default: images lie as the template does.
    """
    velocity = np.zeros_like(generator.velocity(latents))
    is_short = generator.settings.n_steps <= _FEWEST_STEPS
    first, *others = _TURNS_OF_SHORT_PATHS if is_short else _TURNS
    placed = _placed(_in_turn(generator, first), poses)
    descent = ResidualDescent(placed, images, latents, velocity, precision)
    descent.take_steps(first.n_steps)
    for turn in others:
        velocity, here = descent.residuals().velocity, _in_turn(generator, turn)
        bent = _placed(here.bent(velocity), poses)
        latents = encode(
            bent, images, _MOST_SHOOTINGS, start=latents, exact_curvature=False
        ).latents
        placed = _placed(here, poses)
        descent.move_to(placed, latents, velocity)
        descent.take_steps(turn.n_steps)
    descent.move_to(placed, latents, unfolded(generator, latents, descent.residuals().velocity))
    descent.take_steps(_SETTLING_STEPS)
    return latents, unfolded(generator, latents, descent.residuals().velocity)


def _placed(generator: Generator, poses: Float64Array | None) -> Generator:
    return generator if poses is None else PosedGenerator.of(generator, poses)


def _in_turn(generator: Generator, turn: Turn) -> Generator:
    """Return what a model says in a turn."""
    s = generator.settings
    fewer = min(s.n_steps, max(_FEWEST_STEPS, s.n_steps // _FASTER))
    n_steps = fewer if turn.is_quick else s.n_steps
    settings = replace(s, n_steps=n_steps, decimation=turn.trust * s.decimation)
    return replace(generator, settings=settings)
