"""Adjoint shooting: the exact derivative of the discrete geodesic with respect to its velocity.

With s = v/T, one step of `shooting` (Algorithm 4) is

    w = D(id - s)' u;   u' = push(w, id + s);   s' = G u'/T;   d' = d(id - s') - s'

and for x', the derivative of some function with respect to what the step leaves, written x*, the
derivatives with respect to what it found are, from the last line to the first,

    s'* -= d'* + slope(d, -s').d'*;   d* = push(d'*, id - s')       psi = psi o (id - s')
    u'* += G s'*/T                                                  v = G u
    w* = pull(u'*, id + s);   s* = slope(u'*, s).w                  u = push(w, id + s)
    u*_i = w*_i - sum_j (d_j s_i) w*_j;   s*_i += sum_j d_j(u_i w*_j)   w = D(id - s)' u

and at the beginning of the path, where d = -s and u = L v,

    v* = (s* - d*)/T + L u*.

`slope` is the derivative of linear interpolation as it is (`warps.slope_batch`), so that this is
the derivative of what is computed, not of what it approximates. G never sees the mean of a
velocity, which stays the same along the path: its derivatives are collected apart.

Going back needs s, u and d of all steps: 3T - 2 fields, see `n_recorded_fields`.
"""

from __future__ import annotations

import math

import numpy as np

from anamorph.arrays.devices import array_namespace, kernels_for
from anamorph.arrays.typing import Array, IntArray
from anamorph.geometry import paths
from anamorph.geometry.operators import multiply_operator
from anamorph.geometry.shooting import follow
from anamorph.geometry.warps import pull_batch, push_batch, slope_batch

_JACOBIANS = "anamorph.kernels.cpu.jacobians"


def n_recorded_fields(n_steps: int) -> int:
    """Return how many vector fields per image a `RecordedPath` keeps, with room to work."""
    return 3 * n_steps - 2 + 5


class RecordedPath:
    """Geodesics that remember their steps: shooting, and its exact derivative.

    Parameters
    ----------
    v : (N, d, *space)
        Initial velocities in voxels, contiguous, in memory or on a GPU.
    penalty : 5 numbers
        Weights of the operator L.
    voxel_size : d numbers
    n_steps : int
        T.

    Attributes
    ----------
    displacement : (N, d, *space)
        That of psi, as `shoot` returns it up to rounding.
    momentum : (N, d, *space)
        L v.
    """

    def __init__(
        self,
        v: Array,
        penalty: tuple[float, ...],
        voxel_size: tuple[float, ...],
        n_steps: int,
    ) -> None:
        self._operator = penalty, voxel_size
        self._n_steps = n_steps
        self._axes = tuple(range(2, v.ndim))
        self._has_mean = penalty[0] > 0  # if not, G removes it
        total = paths.sum_over_space(v, self._has_mean)
        self._mean = (total / (n_steps * math.prod(v.shape[2:]))).astype(v.dtype)
        self._steps: list[Array] = [v * v.dtype.type(1 / n_steps)]
        self.momentum = self._multiply(v, inverse=False)
        self._momenta: list[Array] = [self.momentum]
        self._warps: list[Array] = [-self._steps[0]]
        follow(self, n_steps - 1)
        self.displacement = self._warps[-1]

    # ---- the steps of `shooting.follow`

    def carry_momentum(self) -> None:
        """Set u = push(D(id - s)' u, id + s)."""
        turned = self._turned(self._steps[-1], self._momenta[-1])
        self._momenta.append(push_batch(turned, self._steps[-1]))

    def update_velocity(self) -> None:
        """Set s = G u / T."""
        scaled = self._momenta[-1] * self._fraction
        self._steps.append(self._multiply(scaled, inverse=True, mean=self._mean))

    def extend_warp(self) -> None:
        """Set psi = psi o (id - s)."""
        back = -self._steps[-1]
        self._warps.append(pull_batch(self._warps[-1], back) + back)

    # ---- the same backwards

    def differentiate(
        self,
        covector: Array,
        which: IntArray | None = None,
        *,
        momentum_covector: Array | None = None,
    ) -> Array:
        """Return the derivative with respect to v of a function of the displacement.

        Parameters
        ----------
        covector : (n, d, *space)
            The derivative of the function with respect to the displacement.
        which : (n,) integers, optional
            The images meant, all by default.
        momentum_covector : (n, d, *space), optional
            That with respect to L v besides, of functions that depend on it too. It takes no
            product with L of its own.

        Returns
        -------
        array of the shape of covector
        """

        def some(fields: Array) -> Array:
            return fields if which is None else fields[which]

        warp_adjoint = covector
        step_adjoint, momentum_adjoint = np.zeros_like(covector), np.zeros_like(covector)
        mean_adjoint = self._average(step_adjoint)
        for t in range(self._n_steps - 1, 0, -1):
            step, back = some(self._steps[t - 1]), -some(self._steps[t])
            momentum = some(self._momenta[t - 1])
            # psi = psi o (id - s')
            step_adjoint -= warp_adjoint
            step_adjoint -= slope_batch(some(self._warps[t - 1]), warp_adjoint, back)
            warp_adjoint = push_batch(warp_adjoint, back)
            # s' = G u' / T, but for the mean
            mean_adjoint = mean_adjoint + self._average(step_adjoint)
            momentum_adjoint += self._multiply(
                step_adjoint * self._fraction, inverse=True, mean=np.zeros_like(mean_adjoint)
            )
            # u' = push(w, id + s)
            turned = self._turned(step, momentum)
            turned_adjoint = pull_batch(momentum_adjoint, step)
            step_adjoint = slope_batch(momentum_adjoint, turned, step)
            # w = D(id - s)' u
            momentum_adjoint = self._turned_back(step, momentum, turned_adjoint, step_adjoint)
        if self._has_mean:
            step_adjoint += mean_adjoint.reshape(*mean_adjoint.shape, *(1,) * len(self._axes))
        step_adjoint -= warp_adjoint
        if momentum_covector is not None:
            momentum_adjoint += momentum_covector
        velocity_adjoint = self._multiply(momentum_adjoint, inverse=False)
        velocity_adjoint += step_adjoint * self._fraction
        return velocity_adjoint

    @property
    def _fraction(self) -> np.floating:
        result: np.floating = self._steps[0].dtype.type(1 / self._n_steps)
        return result

    def _multiply(self, fields: Array, *, inverse: bool, mean: Array | None = None) -> Array:
        return multiply_operator(fields, *self._operator, inverse=inverse, mean=mean)

    def _average(self, fields: Array) -> Array:
        mean: Array = fields.mean(axis=self._axes)
        return mean

    def _turned(self, step: Array, momentum: Array) -> Array:
        """Return w = D(id - s)' u."""
        out = np.empty_like(momentum)
        _run("multiply_transposed_jacobian", [step, momentum], [out])
        return out

    def _turned_back(self, step: Array, momentum: Array, adjoint: Array, force: Array) -> Array:
        """Return u* = D(id - s) w*, and add what s* gets from w* to `force`."""
        out = np.empty_like(momentum)
        _run("multiply_jacobian", [step, momentum, adjoint], [out, force])
        return out


def _run(name: str, fields: list[Array], results: list[Array]) -> None:
    """Run a kernel of `kernels.cpu.jacobians`, or its twin, on fields (N, d, *space)."""
    contiguous = array_namespace(results[0]).ascontiguousarray
    flat = [contiguous(item).reshape(*item.shape[:2], -1) for item in fields]
    filled = [item.reshape(*item.shape[:2], -1) for item in results]
    getattr(kernels_for(results[0], _JACOBIANS), name)(*flat, results[0].shape[2:], *filled)
