"""The last steps of encoding: to the optimum of a model with linear warps, shoot there, and again.

Shooting is what costs, and what it adds to a linear warp is small near the optimum (`tangents`). So
each step goes to the optimum of the model with linear warps, within a distance for which it may be
trusted; kinks of linear interpolation and the likelihood, which need many steps, are dealt with on
the way there, without shooting. One shooting then tells what the step has gained, and one adjoint
shooting the exact gradient; linear warps learn from both. The last step, which promises next to
nothing, needs no gradient.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.model.descent import Descent, Trial, is_positive, newton_decrement
from anamorph.model.generator import Generator, is_no_worse

_SHOOTINGS_PER_STEP = 2  # there, and back for the gradient
_FARTHEST = 6.0  # standard deviations from where tangents are from
_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 0.01  # of trust, in standard deviations
_MOST_LINEAR_STEPS = 30
_LINEAR_TOLERANCE = 0.1  # of a step with linear warps, as a share of that of encoding


class Refinement:
    """Images on their way from where approximate steps have brought them to the optimum.

    Parameters
    ----------
    generator : Generator
        Of images that warps move.
    images : (N, C, *space)
    approach : Descent
        Where approximate steps have led.

    Attributes
    ----------
    latents : (N, K)
        The best so far.
    value : (N,)
        ln p(f | z) - z'Pz/2 there.
    hessian : (N, K, K)
        That of Gauss-Newton with the exact effects of latents, and with the prior.
    decrement : (N,)
        The gain, in nats, that the last step promised.
    n_shootings : (N,)
        Adjoint ones included, those for tangents not.
    """

    def __init__(self, generator: Generator, images: Array, approach: Descent) -> None:
        xp, number = array_namespace(approach.latents), len(images)
        self._generator, self._images = generator, images
        self._shape = generator.settings.layout.shape
        self.latents, self.value = approach.latents.copy(), approach.value.copy()
        self.hessian, self.n_shootings = approach.hessian.copy(), approach.n_shootings.copy()
        self.decrement = xp.full(number, np.inf)
        self._radius = xp.full(number, _FIRST_RADIUS)
        self._tangents = generator.find_tangents(self.latents, self.hessian)
        self._found_at = self.latents.copy()  # where tangents are from
        everyone = xp.arange(number)
        self._find_curvature(everyone)
        self._gradient = self._linear_trial(everyone).gradient

    def take_steps(self, max_shootings: int, tolerance: float) -> None:
        """Take steps while they promise more than `tolerance` and `max_shootings` allow it."""
        while True:
            may_continue = self.n_shootings + _SHOOTINGS_PER_STEP <= max_shootings
            is_unfinished = (self.decrement > tolerance) & (self._radius > _LEAST_RADIUS)
            active = np.flatnonzero(is_unfinished & may_continue)
            if not len(active):
                break
            self._step(active, tolerance)
        everyone = array_namespace(self.latents).arange(len(self.latents))
        self._renew_tangents(everyone)
        self._find_curvature(everyone)

    def _step(self, active: IntArray, tolerance: float) -> None:
        """Go where the model with linear warps has its optimum, if it is better there."""
        latents, promised = self._linear_optimum(active, tolerance)
        self.decrement[active] = promised
        trial = Trial(self._generator.only(active), self._images[active], latents)
        gain = trial.value - self.value[active]
        accepted = is_no_worse(trial.value, self.value[active])
        continues = np.flatnonzero(accepted & (promised > tolerance))
        self.n_shootings[active] += 1 + trial.make_exact(continues)
        self._trust(active, latents, accepted, gain >= promised / 2)
        self._learn_steps(active, trial)
        self._move(active, trial, np.flatnonzero(accepted))
        self._renew_tangents(active[continues])
        self._learn_slopes(active[continues], trial.gradient[continues])

    def _linear_optimum(
        self, active: IntArray, tolerance: float
    ) -> tuple[Float64Array, Float64Array]:
        """Return the latents (n, K) of some images by linear warps, and the gain they promise."""
        linear = self._generator.linearised(self._tangents).only(active)
        descent = _LinearDescent(
            linear,
            self._images[active],
            self.latents[active],
            self.value[active],
            (self._gradient[active], self.hessian[active]),
            self._radius[active],
        )
        descent.take_steps(2 * _MOST_LINEAR_STEPS, _LINEAR_TOLERANCE * tolerance)
        return descent.latents, descent.value - self.value[active]

    def _trust(
        self, active: IntArray, latents: Float64Array, accepted: BoolArray, is_good: BoolArray
    ) -> None:
        """Let steps go farther where one has gained what it promised, and less far if not."""
        step = latents - self.latents[active]
        length = np.sqrt((step * self._weights(step, active)).sum(axis=1))
        longer = np.maximum(self._radius[active], 2 * length)
        shorter = np.where(accepted, length, length / 3)
        self._radius[active] = np.where(is_good, longer, shorter)

    def _weights(self, step: Float64Array, images: IntArray) -> Float64Array:
        return cast(Float64Array, (self.hessian[images] @ step[..., None])[..., 0])

    def _learn_steps(self, active: IntArray, trial: Trial) -> None:
        """Let linear warps move as trials did, where that is more than rounding."""
        step = (trial.latents - self.latents[active])[:, self._shape]
        weights = (self.hessian[active][:, self._shape, self._shape] @ step[..., None])[..., 0]
        is_long = (step * weights).sum(axis=1) > _LEAST_RADIUS**2
        which = np.flatnonzero(is_long & np.isfinite(trial.value))
        images = active[which]
        moved = cast(Array, trial.displacement)[which] - self._tangents.displacement[images]
        self._tangents.learn_step(images, step[which], moved, weights[which])

    def _move(self, active: IntArray, trial: Trial, which: IntArray) -> None:
        images, latents = active[which], trial.latents[which]
        self.latents[images], self.value[images] = latents, trial.value[which]
        displacement = cast(Array, trial.displacement)[which]
        self._tangents.move_to(images, latents[:, self._shape], displacement)

    def _learn_slopes(self, images: IntArray, exact: Float64Array) -> None:
        """Let linear warps of some images have exact gradients (n, K) where they are."""
        if len(images):
            linear = self._linear_trial(images)
            missed = (exact - linear.gradient)[:, self._shape]
            self._tangents.learn_slope(images, linear.forces(_all_of(images)), missed)
            self._gradient[images] = exact

    def _linear_trial(self, images: IntArray) -> Trial:
        """Return some images where they are, by linear warps."""
        linear = self._generator.linearised(self._tangents).only(images)
        trial = Trial(linear, self._images[images], self.latents[images])
        trial.make_exact(_all_of(images))
        return trial

    def _renew_tangents(self, images: IntArray) -> None:
        """Find tangents anew of those images that are far from where they were found."""
        step = self.latents[images] - self._found_at[images]
        is_far = (step * self._weights(step, images)).sum(axis=1) > _FARTHEST**2
        far = images[np.flatnonzero(is_far)]
        if len(far):
            here = self._generator.only(far)
            self._tangents.replace(far, here.find_tangents(self.latents[far], self.hessian[far]))
            self._found_at[far] = self.latents[far]
            self._find_curvature(far)

    def _find_curvature(self, images: IntArray) -> None:
        """Find Hessians of some images from the exact effects of their latents.

        Where shooting from far away leaves what numbers can hold, as counts may, those of before
        stay.
        """
        latents, before = self.latents[images], self.hessian[images]
        linear = self._generator.linearised(self._tangents).only(images)
        _, hessian = linear.tangent_derivatives(latents, before, self._images[images])
        hessian = hessian + self._generator.prior_of(latents)
        is_sound = is_positive(hessian)[:, None, None]
        self.hessian[images] = np.where(is_sound, hessian, before)


class _LinearDescent(Descent):
    """Steps of images whose warps are linear, none of them far from where they are known.

    Parameters
    ----------
    generator, images, latents, value
        As in `Descent`.
    derivatives : (N, K) and (N, K, K)
        Gradient and Hessian of minus the value.
    radius : (N,)
        How far steps may lead, in standard deviations.
    """

    def __init__(
        self,
        generator: Generator,
        images: Array,
        latents: Float64Array,
        value: Float64Array,
        derivatives: tuple[Float64Array, Float64Array],
        radius: Float64Array,
    ) -> None:
        super().__init__(generator, images, latents, value)
        self._centre, self._radius = latents, radius
        self._gradient, self.hessian = derivatives
        self._is_exact[:] = self._is_known[:] = True
        self.decrement = newton_decrement(*derivatives)

    def _approximate(self, trial: Trial, which: IntArray) -> None:
        """Leave the Hessian as it is: it comes from exact effects."""

    def _next_steps(self, active: IntArray) -> Float64Array:
        here = self.latents[active]
        way = here + super()._next_steps(active) - self._centre[active]
        length, radius = self._measure(way, active), self._radius[active]
        way *= (radius / np.maximum(length, radius))[:, None]
        return self._centre[active] + way - here


def _all_of(images: IntArray) -> IntArray:
    everyone: IntArray = array_namespace(images).arange(len(images))
    return everyone
