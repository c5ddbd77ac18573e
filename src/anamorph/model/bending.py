"""Residual warps of new images, found together with their latents.

Latents that were found without a residual warp explain by appearance what is only out of place. So
both are found in turns: steps of the residual velocity r (`model.residuals`), then of the latents z
given r. At first images count for little: warps bring together what is large, and do not get caught
in details on the way. All turns but the last shoot in half as many steps, but not in fewer than
four; where that is no quicker, there are but two turns.

A warp may press places to almost nothing for the last of the likelihood there, which no label or
Jacobian survives. What an image shows around such a place, where a determinant of the warp or of
its inverse is below a tenth, counts as missing from then on: the prior decides there, and the rest
of the image is explained as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import maximum_filter

from anamorph.arrays.devices import array_namespace, beside, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry import jacobian_determinant, shoot_both
from anamorph.geometry.warps import pull_batch
from anamorph.model.encoding import encode
from anamorph.model.generator import Generator
from anamorph.model.posing import PosedGenerator
from anamorph.model.residuals import ResidualDescent


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


_TURNS = (Turn(0.1, 10), Turn(0.3, 10), Turn(1.0, 10), Turn(1.0, 15, is_quick=False))
_TURNS_OF_SHORT_PATHS = (Turn(0.1, 8), Turn(1.0, 12, is_quick=False))
_FASTER, _FEWEST_STEPS = 2, 4  # quick turns shoot in so many times fewer steps, but in so many
_MOST_SHOOTINGS = 6  # for the latents of a turn
_LEAST_DETERMINANT = 0.1  # of psi and of its inverse, at voxels
_RADIUS = 3  # voxels around a pressed place that count as missing, and one more every time
_MOST_RELEASES, _N_RELEASING_STEPS = 8, 5


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
    observed, velocity = images.copy(), np.zeros_like(generator.velocity(latents))
    everyone = array_namespace(velocity).arange(len(velocity))
    is_short = generator.settings.n_steps <= _FEWEST_STEPS
    first, *others = _TURNS_OF_SHORT_PATHS if is_short else _TURNS
    placed = _placed(_in_turn(generator, first), poses)
    descent = ResidualDescent(placed, observed, latents, velocity, precision)
    descent.take_steps(first.n_steps)
    for turn in others:
        velocity, here = descent.residuals().velocity, _in_turn(generator, turn)
        if not turn.is_quick:
            placed = _placed(generator, poses)
            _hide_pressed(placed, observed, latents, velocity, everyone, _RADIUS)
        bent = _placed(here.bent(velocity), poses)
        latents = encode(
            bent, observed, _MOST_SHOOTINGS, start=latents, exact_curvature=False
        ).latents
        descent = descent.moved_to(_placed(here, poses), observed, latents, everyone)
        descent.take_steps(turn.n_steps)
    return latents, _released(_placed(generator, poses), observed, latents, descent)


def _placed(generator: Generator, poses: Float64Array | None) -> Generator:
    return generator if poses is None else PosedGenerator.of(generator, poses)


def _in_turn(generator: Generator, turn: Turn) -> Generator:
    """Return what a model says in a turn."""
    s = generator.settings
    fewer = min(s.n_steps, max(_FEWEST_STEPS, s.n_steps // _FASTER))
    n_steps = fewer if turn.is_quick else s.n_steps
    settings = replace(s, n_steps=n_steps, decimation=turn.trust * s.decimation)
    return replace(generator, settings=settings)


def _released(
    generator: Generator, observed: Array, latents: Float64Array, descent: ResidualDescent
) -> Array:
    """Return velocities after steps without what is pressed too far; what resists stays."""
    velocity = descent.residuals().velocity.copy()
    which = array_namespace(velocity).arange(len(velocity))
    for number in range(_MOST_RELEASES):
        pressed = _hide_pressed(generator, observed, latents, velocity, which, _RADIUS + number)
        if not len(pressed):
            break
        some = beside(which, np.flatnonzero(np.isin(to_host(which), to_host(pressed))))
        which, here = pressed, generator.only(pressed)
        descent = descent.moved_to(here, observed[which], latents[which], some)
        descent.take_steps(_N_RELEASING_STEPS)
        velocity[which] = descent.residuals().velocity
    return velocity


def _hide_pressed(
    generator: Generator,
    observed: Array,
    latents: Float64Array,
    velocity: Array,
    which: IntArray,
    radius: int,
) -> IntArray:
    """Make missing what some images show where they are pressed too far; return which they are."""
    s, some = generator.settings, generator.only(which)
    total = array_namespace(velocity).ascontiguousarray(
        some.velocity(latents[which]) + velocity[which]
    )
    both = shoot_both(total, s.shape_penalty, s.voxel_size, s.n_steps)
    pressed = _pressed_places(*map(to_host, both))
    found = np.flatnonzero(pressed.reshape(len(pressed), -1).any(axis=1))
    if not len(found):
        return which[:0]
    around = maximum_filter(
        pressed[found].astype(np.float32), (1, *(2 * radius + 1,) * s.n_dims), mode="wrap"
    )
    chosen = which[found]
    is_hidden = beside(observed, around[:, None])
    places = generator.only(chosen).placed(None)
    if places is not None:
        is_hidden = pull_batch(is_hidden, places)
    observed[chosen] = np.where(is_hidden > 0, np.float32(np.nan), observed[chosen])
    return chosen


def _pressed_places(warps: Array, inverses: Array) -> BoolArray:
    """Return where images are pressed too far by warps (N, d, *space), or templates by inverses.

    Both are marked where the images have these places, (N, *space).
    """
    pressed: BoolArray = jacobian_determinant(warps) < _LEAST_DETERMINANT
    for n, *voxel in np.argwhere(jacobian_determinant(inverses) < _LEAST_DETERMINANT):
        place = np.rint(voxel + inverses[(n, slice(None), *voxel)]).astype(int)
        pressed[(n, *(place % pressed.shape[1:]))] = True
    return pressed
