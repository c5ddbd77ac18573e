"""The Gauss-Newton systems of the M-step: one per column of a basis, (H_k + weight_k L) x_k = g_k.

H_k is a positive semi-definite matrix at every voxel, L the penalty, whose weight differs from
column to column. After division by the weight all columns have the same L and are solved together:
full multigrid gives a start, conjugate gradients preconditioned by V-cycles do the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.devices import beside, is_on_device, to_host
from anamorph.arrays.typing import BoolArray, Float64Array, IntArray
from anamorph.geometry.fields import as_float, check_penalty, check_vector_field, check_voxel_size
from anamorph.geometry.operators import FIELD_WEIGHTS, VELOCITY_WEIGHTS
from anamorph.kernels.threads import n_threads, run_parallel
from anamorph.solvers.multigrid import conjugate_gradients, multigrid
from anamorph.solvers.system_operator import Regulariser, SystemOperator
from anamorph.solvers.systems import (
    Field,
    FieldBlocks,
    Systems,
    check_systems,
    is_sooner_on_host,
)

logger = logging.getLogger("anamorph")


@dataclass(frozen=True)
class Solution:
    """The solution of a batch of systems.

    Attributes
    ----------
    x : ndarray, shape of the gradient
    residual : ndarray, shape of the leading axes
        The norm of g - (H + weight L) x relative to that of g, evaluated at `x`.
    n_cycles : ndarray of int, shape of the leading axes
        How many V-cycles followed full multigrid.
    converged : bool
        Whether every residual is within the tolerance, or as small as rounding `x` to its number
        type allows.
    """

    x: Field
    residual: Float64Array
    n_cycles: IntArray
    converged: bool


def solve_field(
    hessian: ArrayLike,
    gradient: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    tolerance: float = 1e-3,
    start: ArrayLike | None = None,
    max_cycles: int = 100,
) -> Solution:
    """Solve (H + weight L) x = g for scalar fields (the mean, the appearance basis).

    Parameters
    ----------
    hessian : array_like, shape (..., P, *space)
        At every voxel a positive semi-definite matrix over the C channels: its diagonal (P = C),
        or packed (P = C(C+1)/2) in the order 11, 22, 33, 12, 13, 23.
    gradient : array_like, shape (..., C, *space)
    penalty : (w0, w1, w2)
    voxel_size : array_like
        One number per spatial axis; there are two or three.
    weight : array_like, scalar or shape (...)
        The weight of the penalty in each system.
    tolerance : float
        The residual, relative to g, and the error in the energy norm, relative to x, to reach.
    start : array_like, shape of the gradient, optional
        Where to start; by default 0.
    max_cycles : int
        The most V-cycles to do.

    Returns
    -------
    Solution
        Not reaching the tolerance is reported in it, and logged.

    Notes
    -----
    With w0 = 0 and H = 0 everywhere nothing determines the mean of x, and a ValueError is raised.
    If H leaves only some constants free, as diag(s) - ss' does, g must be orthogonal to them.
    """
    sizes = np.atleast_1d(np.asarray(voxel_size, dtype=np.float64))
    if sizes.shape not in ((2,), (3,)):
        raise ValueError(f"voxel_size must hold 2 or 3 numbers, one per axis, got {voxel_size!r}")
    voxels = check_voxel_size(sizes, sizes.size)
    array = as_float(gradient, "gradient")
    if array.ndim <= sizes.size:
        axes = ", ".join(["..., channels", "nz, ny, nx" if sizes.size == 3 else "ny, nx"])
        raise ValueError(f"gradient must have shape ({axes}), got {array.shape}")
    weights = check_penalty(penalty, FIELD_WEIGHTS)
    regulariser = Regulariser(weights, voxels, array.shape[-sizes.size - 1])
    return _solve(hessian, array, regulariser, weight, tolerance, start, max_cycles)


def solve_velocity(
    hessian: ArrayLike,
    gradient: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    *,
    weight: ArrayLike = 1.0,
    tolerance: float = 1e-3,
    start: ArrayLike | None = None,
    max_cycles: int = 100,
) -> Solution:
    """Solve (H + weight L) x = g for velocity fields (the shape basis), in voxels.

    Parameters
    ----------
    hessian : array_like, shape (..., P, *space)
        At every voxel a positive semi-definite matrix over the d components: its diagonal (P = d),
        or packed (P = d(d+1)/2) in the order 11, 22, 33, 12, 13, 23.
    gradient : array_like, shape (..., d, *space)
    penalty : (w0, w1, w2, w3, w4)
    voxel_size : array_like, optional
        One number per spatial axis; by default 1.
    weight : array_like, scalar or shape (...)
        This and what follows as in `solve_field`.
    tolerance : float
    start : array_like, shape of the gradient, optional
    max_cycles : int

    Returns
    -------
    Solution
        Not reaching the tolerance is reported in it, and logged.
    """
    n_dims = None if voxel_size is None else np.size(np.asarray(voxel_size))
    array, d = check_vector_field(gradient, "gradient", n_dims)
    voxels = check_voxel_size(voxel_size, d)
    weights = check_penalty(penalty, VELOCITY_WEIGHTS)
    if not any(weights[:4]):
        raise ValueError(
            f"penalty must have a positive weight among its first four, got {penalty!r}: the "
            "divergence alone leaves motions free"
        )
    regulariser = Regulariser(weights, voxels, d)
    return _solve(hessian, array, regulariser, weight, tolerance, start, max_cycles)


def _solve(
    hessian: ArrayLike,
    gradient: Field,
    regulariser: Regulariser,
    weight: ArrayLike,
    tolerance: float,
    start: ArrayLike | None,
    max_cycles: int,
) -> Solution:
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be positive and finite, got {tolerance!r}")
    if not isinstance(max_cycles, int) or max_cycles < 1:
        raise ValueError(f"max_cycles must be an integer >= 1, got {max_cycles!r}")
    if is_sooner_on_host(gradient):
        hessian, start = to_host(hessian), to_host(start)
        on_host = to_host(gradient)
        solution = _solve(hessian, on_host, regulariser, weight, tolerance, start, max_cycles)
        return replace(solution, x=beside(gradient, solution.x))
    systems = check_systems(hessian, gradient, regulariser, weight, start)
    n_systems = len(systems.gradient)
    x, residual = np.empty_like(systems.gradient), np.empty(n_systems)
    n_cycles, has_converged = np.empty(n_systems, np.int64), np.empty(n_systems, np.bool_)

    def solve(block: slice) -> None:
        x[block], *report = _solve_block(systems, block, regulariser, tolerance, max_cycles)
        residual[block], n_cycles[block], has_converged[block] = map(to_host, report)

    blocks = systems.split_into_blocks()
    if len(blocks) >= n_threads() and not is_on_device(gradient):
        run_parallel(solve, blocks)
    else:  # threads then share the voxels of each block
        for block in blocks:
            solve(block)
    if not has_converged.all():
        logger.warning(
            "%d of %d linear systems did not reach the tolerance %g within %d cycles: the largest "
            "relative residual is %.2g",
            *(np.sum(~has_converged), n_systems, tolerance, max_cycles, residual.max()),
        )
    leading = gradient.shape[: -len(regulariser.voxel_size) - 1]
    return Solution(
        x.reshape(gradient.shape),
        residual.reshape(leading),
        n_cycles.reshape(leading),
        bool(has_converged.all()),
    )


def _solve_block(
    systems: Systems,
    block: slice,
    regulariser: Regulariser,
    tolerance: float,
    max_cycles: int,
) -> tuple[Field, Float64Array, IntArray, BoolArray]:
    """Return the solutions of some systems, their residuals, cycles, and whether they converged."""
    gradient = systems.gradient[block]
    blocks = FieldBlocks(gradient.shape[2:], len(gradient), gradient.dtype, is_on_device(gradient))
    inverse_weight = beside(gradient, 1 / systems.weight[block], gradient.dtype)
    inverse_weight = inverse_weight.reshape(-1, *(1 for _ in gradient.shape[1:]))
    hessian = blocks.load(systems.hessian[block] * inverse_weight)
    right_hand_side = blocks.load(gradient * inverse_weight)
    operator = SystemOperator(blocks, regulariser.voxel_size, regulariser, hessian)
    level = multigrid(operator)
    if systems.start is None:
        x = level.solve_fully(right_hand_side)
    else:
        x = blocks.load(systems.start[block])
        x[..., blocks.norm(right_hand_side) == 0] = 0
        residual = right_hand_side.copy()
        operator.subtract(residual, x)
        x += level.solve_fully(residual)
    report = conjugate_gradients(level, x, right_hand_side, tolerance, max_cycles)
    return blocks.unload(x), *report
