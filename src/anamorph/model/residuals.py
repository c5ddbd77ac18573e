"""Residual warps: what the modes of shape cannot follow, image by image.

The velocity of an image is v = Wv z + r. A priori r ~ N(0, (tau L)^-1), with the operator L of the
modes and a precision tau that a fit learns. The residual of an image maximises

    ln p(f | z, r) - tau r'Lr / 2

by quasi-Newton steps: exact gradients come from adjoint shooting, and the metric is that of
Gauss-Newton for small warps, H + tau L (Algorithm 6), whose inverse is taken for a V-cycle of
multigrid. The metric underestimates the curvature of large warps, where a change of the initial
velocity changes the whole path; pairs of steps and changes of the gradient correct it
(`solvers.quasi_newton`).

tau is re-estimated by EM. With the posterior covariance of r, (H + tau L)^-1,

    tau = sum_n gamma_n / sum_n r_n'L r_n,   gamma_n = tr H (H + tau L)^-1,

where gamma is the number of coordinates of r that an image determines. Without the trace, tau would
grow beyond all bounds. It is estimated by a random field of signs for each image (Hutchinson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry.adjoint import RecordedPath, n_recorded_fields
from anamorph.geometry.operators import multiply_operator, packed_pairs
from anamorph.geometry.warps import slope_batch
from anamorph.likelihoods.base import Derivatives
from anamorph.model.generator import Generator, slack, working_bytes
from anamorph.model.settings import Settings
from anamorph.solvers import VelocityPreconditioner, solve_velocity
from anamorph.solvers.quasi_newton import PairMemory, dot, each

_LONGEST_STEP = 1.0  # voxels that a step may change a velocity by
_LONGER = 1.2  # after one that was taken
_SHORTER = 0.5  # of a step that was refused
_N_PAIRS = 12
_N_OTHER_FIELDS = 11  # velocities, momenta, gradients and steps
_METRIC_AGE = 5  # steps after which the metric is found anew
_TRACE_TOLERANCE = 0.02
# Images whose last steps gain less each than this share of what all have gained rest until latents
# change. More steps would still raise the value, but hardly bring labels closer together.
_LEAST_GAIN = 1e-3
_N_LAST_STEPS = 4


def residual_bytes(settings: Settings) -> int:
    """Return how many bytes finding the residual warp of one image takes, for a `BatchPlanner`."""
    # Pairs twice: of all images, and of those that take a step.
    n_fields = n_recorded_fields(settings.n_steps) + 4 * _N_PAIRS + _N_OTHER_FIELDS
    return working_bytes(settings) + 4 * math.prod(settings.space) * settings.n_dims * n_fields


@dataclass(frozen=True)
class Residuals:
    """Residual warps of some images.

    Attributes
    ----------
    velocity : (N, d, *space)
        r, in voxels.
    displacement : (N, d, *space)
        That of psi = shoot(Wv z + r).
    log_likelihood : (N,)
        ln p(f | z, r).
    energy : (N,)
        r'Lr.
    improved : (N,) bool
        Whether any step was taken.
    """

    velocity: Array
    displacement: Array
    log_likelihood: Float64Array
    energy: Float64Array
    improved: BoolArray


@dataclass(frozen=True)
class _Observed:
    """Images with all that stays as it is while their residual warps are found.

    Attributes
    ----------
    generator : Generator
        What the model says of these images, without residuals.
    images : (N, C, *space)
    modes : (N, d, *space)
        Wv z.
    momentum : (N, d, *space)
        L Wv z.
    appearance : (N, C, *space)
        mu + Wa z.
    precision : float
        tau.
    """

    generator: Generator
    images: Array
    modes: Array
    momentum: Array
    appearance: Array
    precision: float

    @classmethod
    def at(
        cls, generator: Generator, images: Array, latents: Float64Array, precision: float
    ) -> _Observed:
        """Return images at their latents."""
        s, modes = generator.settings, generator.velocity(latents)
        momentum = multiply_operator(modes, s.shape_penalty, s.voxel_size, inverse=False)
        appearance = generator.appearance(latents)
        return cls(generator, images, modes, momentum, appearance, precision)

    def only(self, which: IntArray) -> _Observed:
        """Return some of the images."""
        if len(which) == len(self.images):
            return self
        return _Observed(
            self.generator.only(which),
            self.images[which],
            self.modes[which],
            self.momentum[which],
            self.appearance[which],
            self.precision,
        )


class _Metric:
    """H + tau L of some images, and about its inverse.

    Parameters
    ----------
    hessian : (n, P, *space)
        H, packed.
    settings : Settings
    precision : float
        tau.
    """

    def __init__(self, hessian: Array, settings: Settings, precision: float) -> None:
        self.hessian, self._settings, self._precision = hessian, settings, precision
        weights = settings.shape_penalty, settings.voxel_size, precision
        self.precondition = VelocityPreconditioner(hessian, *weights)

    def only(self, which: IntArray) -> _Metric:
        """Return that of some of the images."""
        if len(which) == len(self.hessian):
            return self
        return _Metric(self.hessian[which], self._settings, self._precision)


class ResidualDescent:
    """Steps of the residual velocities of some images.

    Parameters
    ----------
    generator : Generator
        Without residuals.
    images : (N, C, *space)
    latents : (N, K)
        z, which stay as they are.
    velocity : (N, d, *space)
        r to start from, on the device of the generator.
    precision : float
        tau.
    """

    def __init__(
        self,
        generator: Generator,
        images: Array,
        latents: Float64Array,
        velocity: Array,
        precision: float,
    ) -> None:
        self._observed = _Observed.at(generator, images, latents, precision)
        xp = array_namespace(velocity)
        self._memory = PairMemory(_N_PAIRS, len(images))
        self._gained: Float64Array = xp.zeros(len(images))
        self._longest: Float64Array = xp.full(len(images), _LONGEST_STEP)
        self._improved: BoolArray = xp.zeros(len(images), bool)
        self._stiffness: Float64Array = xp.zeros(len(images))  # tau s'Ls of the last step s
        self._here = _Visit(self._observed, velocity)

    def move_to(self, generator: Generator, latents: Float64Array, velocity: Array) -> None:
        """Continue elsewhere, under another generator.

        What earlier steps have taught about curvature is kept.
        """
        before = self._observed
        self._observed = _Observed.at(generator, before.images, latents, before.precision)
        self._here = _Visit(self._observed, velocity)

    def take_steps(self, n_steps: int) -> None:
        """Take at most so many steps; an image takes fewer once it gains little by them."""
        xp = array_namespace(self._here.velocity)
        active: IntArray = xp.arange(len(self._here.velocity))
        gains: list[Float64Array] = []
        generator = self._observed.generator
        for number in range(n_steps):
            if number % _METRIC_AGE == 0:
                hessian = self._here.hessian(active)
                metric = _Metric(hessian, generator.settings, self._observed.precision)
            gains.append(self._step(active, metric))
            self._gained += gains[-1]
            if number + 1 < _N_LAST_STEPS:
                continue
            recent = xp.stack(gains[-_N_LAST_STEPS:]).sum(axis=0)
            is_useful = recent > _LEAST_GAIN * _N_LAST_STEPS * self._gained
            kept = np.flatnonzero(is_useful[active])
            if not len(kept):
                break
            active, metric = active[kept], metric.only(kept)

    def residuals(self) -> Residuals:
        """Return where the images are now."""
        here = self._here
        return Residuals(
            here.velocity,
            here.displacement,
            here.log_likelihood,
            2 * here.prior / self._observed.precision,
            self._improved,
        )

    def determined(self, seed: int, first: int = 0) -> Float64Array:
        """Return tr H (H + tau L)^-1, (N,), estimated by a random field of signs for each image.

        Fields of their own make errors average out over images.

        Parameters
        ----------
        seed : int
        first : int
            Number of the first image among all that have the seed in common; 0 by default.
        """
        xp, shape = array_namespace(self._here.velocity), self._here.velocity.shape
        signs = np.empty(shape, np.float32)
        for number, field in enumerate(signs, start=first):
            field[...] = np.random.default_rng([seed, number]).integers(0, 2, shape[1:]) * 2 - 1
        signs = xp.asarray(signs)
        hessian = self._here.hessian(xp.arange(shape[0]))
        s, precision = self._observed.generator.settings, self._observed.precision
        weights = s.shape_penalty, s.voxel_size
        solved = solve_velocity(
            hessian, signs, *weights, weight=precision, tolerance=_TRACE_TOLERANCE
        ).x
        return np.maximum(dot(_multiplied(hessian, signs), solved), 0)

    def _step(self, active: IntArray, metric: _Metric) -> Float64Array:
        """Try a step of some images, and keep it where it is no worse; return the gain, (N,).

        Parameters
        ----------
        active : (n,) integers
            The images that take it.
        metric : _Metric
            Theirs.
        """
        here, observed = self._here, self._observed.only(active)

        def curvature(last_step: Array) -> Float64Array:
            along = dot(last_step, _multiplied(metric.hessian, last_step))
            return along + self._stiffness[active]

        velocity, gradient, longest = (
            field[active] for field in (here.velocity, here.gradient, self._longest)
        )
        direction = self._memory.direction(gradient, metric.precondition, curvature, active)
        length = _longest_vector(direction)
        factor = np.minimum(1, longest / np.maximum(length, 1e-12))
        trial = _Visit(observed, velocity - each(factor, direction) * direction)
        step = trial.velocity - velocity
        self._memory.learn(step, trial.gradient - gradient, active)
        product = dot(step, trial.momentum - here.momentum[active])
        self._stiffness[active] = observed.precision * product
        gain = trial.value - here.value[active]
        accepted = gain >= -slack(here.log_likelihood[active])
        self._longest[active] = np.where(
            accepted,
            np.minimum(_LONGER * longest, _LONGEST_STEP),
            _SHORTER * np.minimum(length, longest),
        )
        taken = np.flatnonzero(accepted)
        self._improved[active[taken]] = True
        here.take(trial, taken, active[taken])
        gains = np.zeros_like(self._longest)
        gains[active[taken]] = gain[taken]
        return gains


class _Visit:
    """Images at some residual velocities: the value there, and its derivatives.

    Attributes
    ----------
    velocity, displacement
        As in `Residuals`.
    prior : (N,)
        tau r'Lr / 2.
    momentum : (N, d, *space)
        L (Wv z + r).
    gradient : (N, d, *space)
        That of minus the value, exactly.
    """

    def __init__(self, observed: _Observed, velocity: Array) -> None:
        generator, s = observed.generator, observed.generator.settings
        self._observed, self.velocity = observed, velocity
        xp = array_namespace(velocity)
        total = xp.ascontiguousarray(observed.modes + velocity)
        path = RecordedPath(total, s.shape_penalty, s.voxel_size, s.n_steps)
        self.displacement, self.momentum = path.displacement, path.momentum
        appearance = observed.appearance
        self._warped = generator.warped_derivatives(appearance, self.displacement, observed.images)
        self.prior = 0.5 * observed.precision * dot(velocity, path.momentum - observed.momentum)
        places = cast(Array, generator.placed(self.displacement))
        slopes = generator.unplaced(slope_batch(appearance, self._warped.gradient, places))
        scaled = velocity * velocity.dtype.type(observed.precision)
        self.gradient = path.differentiate(slopes, momentum_covector=scaled)

    @property
    def log_likelihood(self) -> Float64Array:
        """That of each image at z and r, (N,)."""
        return self._warped.log_likelihood

    @property
    def value(self) -> Float64Array:
        """What is maximised, (N,)."""
        return self.log_likelihood - self.prior

    def hessian(self, which: IntArray) -> Array:
        """Return H of some images, packed: that of Gauss-Newton for small changes of the warp."""
        observed = self._observed.only(which)
        warped = self._warped
        some = Derivatives(
            warped.log_likelihood[which], warped.gradient[which], warped.hessian[which]
        )
        pushed = observed.generator.pushed(some, self.displacement[which])
        return observed.generator.shape_derivatives(observed.appearance, pushed)[1]

    def take(self, other: _Visit, theirs: IntArray, mine: IntArray) -> None:
        """Take over what another visit found for its images `theirs`, which are `mine` here."""
        if len(theirs) == len(self.velocity):
            self.__dict__.update(other.__dict__)
            return

        def merged(own: Array, found: Array) -> Array:
            changed = own.copy()
            changed[mine] = found[theirs]
            return changed

        for name in ("velocity", "displacement", "prior", "momentum", "gradient"):
            setattr(self, name, merged(getattr(self, name), getattr(other, name)))
        own, found = self._warped, other._warped
        self._warped = Derivatives(
            cast(Float64Array, merged(own.log_likelihood, found.log_likelihood)),
            merged(own.gradient, found.gradient),
            merged(own.hessian, found.hessian),
        )


def improve_residuals(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    velocity: Array,
    precision: float,
    n_steps: int,
) -> Residuals:
    """Improve the residual velocities of images by some steps.

    Parameters
    ----------
    generator : Generator
        Without residuals, on the device of the images.
    images : (N, C, *space)
    latents : (N, K)
    velocity : (N, d, *space)
        r to start from.
    precision : float
        tau.
    n_steps : int
        The most steps to take.
    """
    descent = ResidualDescent(generator, images, latents, velocity, precision)
    descent.take_steps(n_steps)
    return descent.residuals()


def _multiplied(hessian: Array, fields: Array) -> Array:
    """Return packed matrices (N, P, *space) times vectors (N, d, *space)."""
    product = np.zeros_like(fields)
    for number, (i, j) in enumerate(packed_pairs(fields.shape[1])):
        product[:, i] += hessian[:, number] * fields[:, j]
        if i != j:
            product[:, j] += hessian[:, number] * fields[:, i]
    return product


def _longest_vector(fields: Array) -> Float64Array:
    """Return the length of the longest vector of each field (N, d, *space), in voxels."""
    squares = (fields**2).sum(axis=1).reshape(len(fields), -1)
    longest: Float64Array = np.sqrt(squares.max(axis=1)).astype(np.float64)
    return longest
