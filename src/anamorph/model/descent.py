"""Quasi-Newton descent of -ln p(f | z) + z'Pz/2 to a true optimum, image by image, many at a time.

Far from the optimum, steps are those of Gauss-Newton (Algorithm 7), whose gradient comes with each
shooting but is approximate where images are warped. Once it promises little, adjoint shooting gives
the exact gradient, and the Hessian of Gauss-Newton becomes a metric that learns: each pair of a
step and the change of the exact gradient along it corrects the metric (BFGS with Powell's damping),
whether the step was taken or refused. A refused step thus makes the next one shorter, and needs no
line search; the kinks that linear interpolation has between voxels become directions of high
curvature. `model.refinement` takes over where the exact effects of latents may be found.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.likelihoods.base import Derivatives
from anamorph.model.generator import Generator, is_no_worse, where_held

#: Nats that an approximate step promises, below which gradients are exact.
SWITCH_AT = 1.0
_MOST_HALVINGS = 2  # of approximate steps, after which gradients are exact
_LONGEST_STEP = 4.0  # standard deviations that the first exact step may go
_SHORTEST_STEP = 0.01  # the least that later ones may go
_MOST_PAIRS = 12  # that are remembered
_SHOOTINGS_PER_STEP = 2  # there, and back for the gradient
_MOST_STIFFENED = 1e6  # times the trace of a Hessian that pairs may make of it
_DAMPING = 0.85  # the least curvature along a step, as a share of what the metric expects


class Descent:
    """Steps that some images have taken so far.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents : (N, K)
        Where to return to if the first visit is no better.
    value : (N,), optional
        The value there; by default any visit is better.
    approximate : bool
        Whether to stay with approximate gradients, and to be finished where exact ones would be
        needed; not by default.

    Attributes
    ----------
    latents : (N, K)
        The best so far.
    value : (N,)
        ln p(f | z) - z'Pz/2 there.
    hessian : (N, K, K)
        That of Gauss-Newton, with the prior.
    decrement : (N,)
        The gain that one more step promises, in nats, by exact gradients; infinite before.
    n_shootings : (N,)
        Adjoint ones included.
    """

    def __init__(
        self,
        generator: Generator,
        images: Array,
        latents: Float64Array,
        value: Float64Array | None = None,
        *,
        approximate: bool = False,
    ) -> None:
        xp, (number, n_latents) = array_namespace(latents), latents.shape
        self._generator, self._images = generator, images
        self._stays_approximate = approximate
        self.latents = latents.copy()
        self.value = xp.full(number, -np.inf) if value is None else value.copy()
        self.hessian = xp.zeros((number, n_latents, n_latents)) + generator.prior_of(latents)
        self.decrement = xp.full(number, np.inf)
        self.n_shootings = xp.zeros(number, np.intp)
        self._gradient = xp.zeros((number, n_latents))
        self._is_exact = xp.zeros(number, bool)
        self._is_known = xp.zeros(number, bool)  # whether there is a gradient
        self._n_refused = xp.zeros(number, np.intp)
        self._longest = xp.full(number, _LONGEST_STEP)
        self._steps, self._changes = xp.zeros((2, number, _MOST_PAIRS, n_latents))

    def take_steps(self, max_shootings: int, tolerance: float) -> None:
        """Take steps while they promise more than `tolerance` and `max_shootings` allow it."""
        while True:
            may_continue = self.n_shootings + _SHOOTINGS_PER_STEP <= max_shootings
            active = np.flatnonzero((self.decrement > tolerance) & may_continue)
            if not len(active):
                break
            self.visit(self.latents[active] + self._next_steps(active), active)

    def visit(self, latents: Float64Array, active: IntArray | None = None) -> None:
        """Shoot images (all by default) at other latents (n, K), and stay where it is better."""
        if active is None:
            active = array_namespace(latents).arange(len(latents))
        trial = Trial(self._generator.only(active), self._images[active], latents)
        was_exact, must_return = self._is_exact[active], self._must_return(active)
        accepted = must_return | is_no_worse(trial.value, self.value[active])
        self._approximate(trial, np.flatnonzero(accepted))
        is_near = accepted & (newton_decrement(trial.gradient, trial.hessian) < SWITCH_AT)
        is_exact = was_exact | (must_return & self._is_known[active]) | is_near
        self.n_shootings[active] += 1
        if not self._stays_approximate:
            self.n_shootings[active] += trial.make_exact(np.flatnonzero(is_exact))
        self._learn(active, trial, np.flatnonzero(was_exact))
        self._judge(active, trial, accepted)
        self._move(active, trial, np.flatnonzero(accepted))
        self._is_exact[active] = is_exact
        promised = newton_decrement(self._gradient[active], self._metric(active))
        if self._stays_approximate:
            promised = np.zeros_like(promised)
        self.decrement[active] = np.where(is_exact, promised, np.inf)

    def _approximate(self, trial: Trial, which: IntArray) -> None:
        """Find what some images of a trial need before they may have exact gradients."""
        trial.approximate(which)

    def _must_return(self, active: IntArray) -> BoolArray:
        """Tell which images have to go back to their best latents.

        That is so if nothing is known there yet, or after too many refused approximate steps, to be
        exact from then on.
        """
        most = np.where(self._is_known[active], _MOST_HALVINGS, 0)
        refused: BoolArray = self._n_refused[active] > most
        is_exact: BoolArray = self._is_exact[active]
        return refused & ~is_exact

    def _next_steps(self, active: IntArray) -> Float64Array:
        """Return Newton steps: if approximate, halved as often as refused; if exact, not too long.

        Exact gradients come near the optimum, where a step of many standard deviations means that
        the metric is wrong.
        """
        metric, gradient = self._metric(active), self._gradient[active]
        newton = -np.linalg.solve(metric, gradient[..., None])[..., 0]
        length, longest = self._measure(newton, active), self._longest[active]
        scale = np.where(
            self._is_exact[active],
            longest / np.maximum(length, longest),
            0.5 ** self._n_refused[active],
        )
        return newton * np.where(self._must_return(active), 0.0, scale)[:, None]

    def _measure(self, steps: Float64Array, active: IntArray) -> Float64Array:
        """Return the lengths of steps (n, K) in standard deviations of the posterior."""
        squares = (steps[:, None] @ self.hessian[active] @ steps[..., None])[:, 0, 0]
        return cast(Float64Array, np.sqrt(squares))

    def _judge(self, active: IntArray, trial: Trial, accepted: BoolArray) -> None:
        """Count refused steps, and let the next ones be longer or shorter."""
        length = self._measure(trial.latents - self.latents[active], active)
        longest = self._longest[active]
        shorter = np.minimum(longest, np.maximum(length, _SHORTEST_STEP)) / 2
        self._longest[active] = np.where(
            self._is_exact[active], np.where(accepted, 2 * longest, shorter), longest
        )
        self._n_refused[active] = np.where(accepted, 0, self._n_refused[active] + 1)

    def _learn(self, active: IntArray, trial: Trial, which: IntArray) -> None:
        """Remember what exact gradients say of the curvature along steps, taken or refused."""
        images = active[which]
        for kept, now, before in (
            (self._steps, trial.latents, self.latents),
            (self._changes, trial.gradient, self._gradient),
        ):
            kept[images, :-1] = kept[images, 1:]
            kept[images, -1] = now[which] - before[images]

    def _move(self, active: IntArray, trial: Trial, which: IntArray) -> None:
        images = active[which]
        self.latents[images] = trial.latents[which]
        self.value[images] = trial.value[which]
        self._gradient[images] = trial.gradient[which]
        self._is_known[images] = True
        curved = np.flatnonzero(trial.is_approximated)
        self.hessian[active[curved]] = trial.hessian[curved]

    def _metric(self, active: IntArray) -> Float64Array:
        """Return the Hessian corrected by all pairs that are remembered, (n, K, K)."""
        metric: Float64Array = self.hessian[active]
        for pair in range(_MOST_PAIRS):
            metric = corrected_metric(
                metric, self._steps[active, pair], self._changes[active, pair]
            )
        # Far from all that a model knows, gradients change by more than numbers can hold.
        stiffness, plain = (
            np.trace(each, axis1=1, axis2=2) for each in (metric, self.hessian[active])
        )
        is_sound = (stiffness < _MOST_STIFFENED * plain)[:, None, None]
        return cast(Float64Array, np.where(is_sound, metric, self.hessian[active]))


class Trial:
    """Images at some latents: the value there, and its derivatives as they are asked for.

    Attributes
    ----------
    latents, value
        As in `Descent`.
    gradient, hessian : (N, K) and (N, K, K)
        Of minus the value: those of the prior before the others are asked for.
    displacement : (N, d, *space) or None
        That of psi.
    is_approximated : (N,) bool
        Which Hessians are those of Gauss-Newton.
    """

    def __init__(self, generator: Generator, images: Array, latents: Float64Array) -> None:
        self._generator, self.latents = generator, latents
        self._appearance = generator.appearance(latents)
        self._path = generator.record(latents)
        self.displacement = None if self._path is None else self._path.displacement
        self._warped = generator.warped_derivatives(self._appearance, self.displacement, images)
        value = self._warped.log_likelihood + generator.log_prior(latents)
        self.value = where_held(value, self.displacement)
        self._prior = generator.prior_of(latents)
        self.gradient = latents @ self._prior
        self.hessian = np.zeros_like(latents)[..., None] + self._prior
        self.is_approximated = array_namespace(latents).zeros(len(latents), bool)

    def approximate(self, which: IntArray) -> None:
        """Find the gradient and the Hessian of Gauss-Newton for some images (Algorithm 7)."""
        if len(which):
            gradient, hessian = self._generator.latent_derivatives(
                self._appearance[which], self._pushed(which)
            )
            self.gradient[which] += gradient
            self.hessian[which] += hessian
            self.is_approximated[which] = True

    def make_exact(self, which: IntArray) -> IntArray:
        """Make gradients of some images exact; return how many adjoints that takes, (N,)."""
        n_adjoints = np.zeros_like(self.value, np.intp)
        if self._path is not None and len(which):
            exact = self._generator.exact_gradient(
                self._path, self._appearance, self._warped.gradient, which
            )
            self.gradient[which] = self.latents[which] @ self._prior + exact
            n_adjoints[which] = 1
        return n_adjoints

    def forces(self, which: IntArray) -> Array:
        """Return the derivative with respect to the displacement of some images."""
        moved = cast(Array, self.displacement)[which]
        here = self._generator.only(which)
        return here.force(self._appearance[which], moved, self._warped.gradient[which])

    def _pushed(self, which: IntArray) -> Derivatives:
        warped = self._warped
        some = Derivatives(
            warped.log_likelihood[which], warped.gradient[which], warped.hessian[which]
        )
        displacement = None if self.displacement is None else self.displacement[which]
        return self._generator.only(which).pushed(some, displacement)


def corrected_metric(
    metric: Float64Array, step: Float64Array, change: Float64Array
) -> Float64Array:
    """Return metrics (N, K, K) with which `step` explains the change of the gradient (BFGS).

    Where the gradient changes by less than a metric expects, or against the step, the change is
    moved towards what is expected (Powell's damping), so that the metric stays positive definite.
    Steps so short that gradients change by little more than rounding correct nothing.

    Parameters
    ----------
    metric : (N, K, K)
    step, change : (N, K)
    """
    expected = (metric @ step[..., None])[..., 0]
    length = (step * expected).sum(axis=1)
    found = (step * change).sum(axis=1)
    is_step = length > _SHORTEST_STEP**2
    length = np.where(is_step, length, 1.0)
    share = np.where(
        found >= _DAMPING * length,
        1.0,
        (1 - _DAMPING) * length / np.maximum(length - found, _DAMPING * length),
    )[:, None]
    damped = share * change + (1 - share) * expected
    along = np.where(is_step, (step * damped).sum(axis=1), 1.0)
    correction = _outer(damped) / along[:, None, None] - _outer(expected) / length[:, None, None]
    result: Float64Array = metric + correction * is_step[:, None, None]
    return result


def _outer(vectors: Float64Array) -> Float64Array:
    return vectors[:, :, None] * vectors[:, None, :]


def is_positive(matrices: Float64Array) -> BoolArray:
    """Tell which symmetric matrices (N, K, K) are finite and positive definite, up to rounding."""
    small = to_host(matrices)  # few numbers, whose eigenvalues a processor finds sooner
    is_finite = np.isfinite(small).all(axis=(1, 2))
    values = np.linalg.eigvalsh(np.where(is_finite[:, None, None], small, 0))
    is_positive: BoolArray = array_namespace(matrices).asarray(values[:, 0] > 1e-14 * values[:, -1])
    return is_positive


def newton_decrement(gradient: Float64Array, metric: Float64Array) -> Float64Array:
    """Return g'M^-1 g/2, (N,)."""
    newton = np.linalg.solve(metric, gradient[..., None])[..., 0]
    result: Float64Array = 0.5 * (gradient * newton).sum(axis=1)
    return result
