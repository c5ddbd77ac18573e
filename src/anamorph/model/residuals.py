"""Residual warps: what the modes of shape cannot follow, image by image.

The velocity of an image is v = Wv z + r. A priori r ~ N(0, (tau L)^-1), with the operator L of the
modes and a precision tau that a fit learns. The residual of an image maximises

    ln p(f | z, r) - tau r'Lr / 2

by quasi-Newton steps: exact gradients come from adjoint shooting, and the metric is that of
Gauss-Newton for small warps, H + tau L, whose systems multigrid solves (Algorithm 6). It
underestimates the curvature of large warps, where a change of the initial velocity changes the
whole path; pairs of steps and changes of the gradient correct it (`solvers.quasi_newton`).

tau is re-estimated by EM. With the posterior covariance of r, (H + tau L)^-1,

    tau = sum_n gamma_n / sum_n r_n'L r_n,   gamma_n = tr H (H + tau L)^-1,

where gamma is the number of coordinates of r that an image determines. Without the trace, tau would
grow beyond all bounds. It is estimated by one random field of signs (Hutchinson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry.adjoint import RecordedPath, n_recorded_fields
from anamorph.geometry.operators import multiply_operator
from anamorph.geometry.penalties import packed_pairs
from anamorph.geometry.warps import slope_batch
from anamorph.model.generator import Generator, slack, working_bytes
from anamorph.model.settings import Settings
from anamorph.solvers import solve_velocity
from anamorph.solvers.quasi_newton import PairMemory, dot, each

_LONGEST_STEP = 1.0  # voxels that a step may change a velocity by
_LONGER = 1.2  # after one that was taken
_SHORTER = 0.5  # of a step that was refused
_N_PAIRS = 12
_N_OTHER_FIELDS = 8  # velocities, gradients and steps
_METRIC_AGE = 5  # steps after which the metric is found anew
_SOLVER_TOLERANCE, _TRACE_TOLERANCE = 0.3, 0.02
# Images whose last steps gain less each than this share of what all have gained are finished. More
# steps would still raise the value, but not bring labels closer together, and they cost time.
_LEAST_GAIN = 4e-3
_N_LAST_STEPS = 4


def residual_bytes(settings: Settings) -> int:
    """Return how many bytes finding the residual warp of one image takes, for a `BatchPlanner`."""
    n_fields = n_recorded_fields(settings.n_steps) + 2 * _N_PAIRS + _N_OTHER_FIELDS
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
        self._generator, self._images, self._precision = generator, images, precision
        self._modes = generator.velocity(latents)
        self._appearance = generator.appearance(latents)
        self._memory = PairMemory(_N_PAIRS)
        xp = array_namespace(velocity)
        self._longest: Float64Array = xp.full(len(images), _LONGEST_STEP)
        self._improved: BoolArray = xp.zeros(len(images), bool)
        self._here = _Visit(self, velocity)

    def take_steps(self, n_steps: int) -> None:
        """Take at most so many steps; an image takes fewer once it gains little by them."""
        xp = array_namespace(self._images)
        is_active = xp.ones(len(self._images), bool)
        gains: list[Float64Array] = []
        for number in range(n_steps):
            if number % _METRIC_AGE == 0:
                self._hessian = self._here.hessian()
            gains.append(self._step(is_active))
            if number + 1 >= _N_LAST_STEPS:
                recent, total = sum(gains[-_N_LAST_STEPS:]), sum(gains)
                is_active = is_active & (recent > _LEAST_GAIN * _N_LAST_STEPS * total)
            if not is_active.any():
                break

    def residuals(self) -> Residuals:
        """Return where the images are now."""
        here = self._here
        return Residuals(
            here.velocity,
            here.displacement,
            here.log_likelihood,
            2 * here.prior / self._precision,
            self._improved,
        )

    def determined(self, seed: int) -> Float64Array:
        """Return tr H (H + tau L)^-1, (N,), estimated by a random field of signs."""
        xp, shape = array_namespace(self._here.velocity), self._here.velocity.shape
        draws = np.random.default_rng(seed).integers(0, 2, shape[1:]) * 2 - 1
        signs = xp.asarray(np.broadcast_to(draws.astype(np.float32), shape).copy())
        hessian = self._here.hessian()
        product = dot(_multiplied(hessian, signs), self._solved(hessian, signs, _TRACE_TOLERANCE))
        return np.maximum(product, 0)

    def _step(self, is_active: BoolArray) -> Float64Array:
        """Try a step, keep it where it is no worse and images are active; return the gain, (N,)."""
        here, xp = self._here, array_namespace(self._images)

        def solve(fields: Array) -> Array:
            return self._solved(self._hessian, fields, _SOLVER_TOLERANCE)

        def multiply(fields: Array) -> Array:
            return _multiplied(self._hessian, fields) + self._penalised(fields)

        direction = self._memory.direction(here.gradient, solve, multiply)
        length = _longest_vector(direction)
        factor = np.minimum(1, self._longest / np.maximum(length, 1e-12))
        trial = _Visit(self, here.velocity - each(factor, direction) * direction)
        self._memory.learn(trial.velocity - here.velocity, trial.gradient - here.gradient)
        gain = trial.value - here.value
        accepted = is_active & (gain >= -slack(here.log_likelihood))
        shorter = _SHORTER * np.minimum(length, self._longest)
        self._longest = xp.where(
            accepted, np.minimum(_LONGER * self._longest, _LONGEST_STEP), shorter
        )
        self._improved = self._improved | accepted
        here.take(trial, np.flatnonzero(accepted))
        return cast(Float64Array, xp.where(accepted, gain, 0.0))

    def _penalised(self, fields: Array) -> Array:
        """Return tau L times fields."""
        s = self._generator.settings
        product = multiply_operator(fields, s.shape_penalty, s.voxel_size, inverse=False)
        return product * product.dtype.type(self._precision)

    def _solved(self, hessian: Array, fields: Array, tolerance: float) -> Array:
        """Return (H + tau L)^-1 times fields, to a tolerance."""
        s = self._generator.settings
        solution = solve_velocity(
            hessian,
            fields,
            s.shape_penalty,
            s.voxel_size,
            weight=self._precision,
            tolerance=tolerance,
        )
        return solution.x


class _Visit:
    """Images at some residual velocities: the value there, and its derivatives.

    Attributes
    ----------
    velocity, displacement, log_likelihood
        As in `Residuals`.
    prior : (N,)
        tau r'Lr / 2.
    gradient : (N, d, *space)
        That of minus the value, exactly.
    """

    def __init__(self, descent: ResidualDescent, velocity: Array) -> None:
        generator, s = descent._generator, descent._generator.settings
        self._descent, self.velocity = descent, velocity
        xp = array_namespace(velocity)
        total = xp.ascontiguousarray(descent._modes + velocity)
        path = RecordedPath(total, s.shape_penalty, s.voxel_size, s.n_steps)
        self.displacement = path.displacement
        appearance = descent._appearance
        self._warped = generator.warped_derivatives(appearance, self.displacement, descent._images)
        self.log_likelihood = self._warped.log_likelihood
        penalised = descent._penalised(velocity)
        self.prior = 0.5 * dot(velocity, penalised)
        places = cast(Array, generator.placed(self.displacement))
        slopes = generator.unplaced(slope_batch(appearance, self._warped.gradient, places))
        self.gradient = path.differentiate(slopes) + penalised

    @property
    def value(self) -> Float64Array:
        """What is maximised, (N,)."""
        return self.log_likelihood - self.prior

    def hessian(self) -> Array:
        """Return H, packed: that of Gauss-Newton for small changes in the template's space."""
        generator = self._descent._generator
        pushed = generator.pushed(self._warped, self.displacement)
        return generator.shape_derivatives(self._descent._appearance, pushed)[1]

    def take(self, other: _Visit, which: IntArray) -> None:
        """Take over what another visit found for some images."""
        if len(which) == len(self.velocity):
            self.__dict__.update(other.__dict__)
            return
        for name in ("velocity", "displacement", "log_likelihood", "prior", "gradient"):
            mine = getattr(self, name).copy()
            mine[which] = getattr(other, name)[which]
            setattr(self, name, mine)
        mine, theirs = self._warped, other._warped
        for field, found in zip(
            (mine.log_likelihood, mine.gradient, mine.hessian),
            (theirs.log_likelihood, theirs.gradient, theirs.hessian),
            strict=True,
        ):
            field[which] = found[which]


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
