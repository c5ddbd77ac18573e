"""Geodesic shooting: from an initial velocity to the diffeomorphism it generates (Algorithm 4).

    u = L v;  psi = id - v/T
    repeat T - 1 times:
        u = push(D(id - v/T)' u, id + v/T)
        v = G u
        psi = psi o (id - v/T)

The momentum u is carried along step by step, which is more stable than pulling back the initial
one, as Algorithm 4 is printed. The algorithm stands here once, in `follow`; the operations come
from a `Path`, of which there is one for processors and one for GPUs. Small planes take the same
steps in one compiled call, see `kernels.cpu.geodesics`.

Geodesics never fold, but finite steps do, where velocities are large or rough: the Jacobian
determinant of psi is not positive somewhere. More steps cure most folds (`shoot_unfolded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.devices import array_namespace, beside, is_on_device, kernels_for, to_host
from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.geometry.fields import check_penalty, check_vector_field, check_voxel_size
from anamorph.geometry.inverses import InverseOfSteps, corner_determinants, polished_inverse
from anamorph.geometry.operators import (
    VELOCITY_WEIGHTS,
    is_small_plane,
    packed_symbol,
    plane_symbol,
    symbol_on_device,
)
from anamorph.geometry.paths import BlockPath, PlanePath
from anamorph.geometry.warps import jacobian_determinant
from anamorph.kernels.blocks import lanes_per_block
from anamorph.kernels.threads import n_threads, one_blas_thread, run_parallel, slabs

_BYTES_ON_DEVICE = 2**27  # of velocities at a time

#: Times as many steps as were asked for, to be tried in turn.
MORE_STEPS = (2, 4, 8)


class Path(Protocol):
    """Where images are on their way: with velocity v, momentum u and warp psi so far."""

    def carry_momentum(self) -> None:
        """Set u = push(D(id - v/T)' u, id + v/T)."""

    def update_velocity(self) -> None:
        """Set v = G u."""

    def extend_warp(self) -> None:
        """Set psi = psi o (id - v/T)."""


@overload
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: Literal[False] = False,
) -> Array: ...
@overload
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: Literal[True],
) -> tuple[Array, Array]: ...
def shoot(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
    *,
    return_velocity: bool = False,
) -> Array | tuple[Array, Array]:
    """Return the displacement of the diffeomorphism psi that an initial velocity generates.

    Parameters
    ----------
    v : array of shape (..., d, *space)
        Initial velocities in voxels, on a periodic grid of d = 2 or 3 axes.
    penalty : 5 numbers
        Weights (w0, ..., w4) of the operator L, as for `momentum`.
    voxel_size : d numbers, optional
        Size of a voxel along each axis; 1 by default.
    n_steps : int
        Number T of Euler steps; 8 by default.
    return_velocity : bool
        Whether to return the velocity at the end of the path too; not by default.

    Returns
    -------
    displacement : array of the shape of v
        In voxels: psi = id + displacement.
    velocity : array of the shape of v
        Only with `return_velocity`.
    """
    array, fields, arguments = _checked(v, penalty, voxel_size, n_steps)
    final = np.empty_like(fields) if return_velocity else None
    shoot_fields = _shoot_on_device if is_on_device(array) else _shoot_in_blocks
    end = shoot_fields(fields, *arguments, final).reshape(array.shape)
    return end if final is None else (end, final.reshape(array.shape))


def shoot_both(
    v: ArrayLike,
    penalty: Sequence[float],
    voxel_size: ArrayLike | None = None,
    n_steps: int = 8,
) -> tuple[Array, Array]:
    """Return the displacements of psi and of its inverse, both along the geodesic.

    The inverse is composed of the exact inverses of the small steps that psi is composed of, and
    then made exact for psi on its grid: psi(psi^-1(x)) is x to 0.001 voxels, except where psi
    folds.

    Parameters
    ----------
    v, penalty, voxel_size, n_steps
        As for `shoot`.

    Returns
    -------
    displacement, inverse : arrays of the shape of v
        In voxels.
    """
    array, fields, arguments = _checked(v, penalty, voxel_size, n_steps)
    inverse = np.empty_like(fields)
    shoot_fields = _shoot_on_device if is_on_device(array) else _shoot_in_blocks
    end = shoot_fields(fields, *arguments, None, inverse)
    polished = polished_inverse(end, inverse)
    return end.reshape(array.shape), polished.reshape(array.shape)


def _checked(
    v: ArrayLike, penalty: Sequence[float], voxel_size: ArrayLike | None, n_steps: int
) -> tuple[Array, Array, tuple[tuple[float, ...], tuple[float, ...], int]]:
    """Return v as it was given and as (N, d, *space), and the other arguments of shooting."""
    array, d = check_vector_field(v, "v", None if voxel_size is None else np.size(voxel_size))
    if not isinstance(n_steps, int | np.integer) or n_steps < 1:
        raise ValueError(f"n_steps must be an integer >= 1, got {n_steps!r}")
    weights = check_penalty(penalty, VELOCITY_WEIGHTS)
    size = check_voxel_size(voxel_size, d)
    if not is_on_device(array) and not np.all(np.isfinite(array)):
        raise ValueError("v must be finite, got NaN or infinity")
    return array, array.reshape(-1, d, *array.shape[-d:]), (weights, size, int(n_steps))


def follow(path: Path, n_steps: int, after_step: Callable[[], object] | None = None) -> None:
    """Take steps of Algorithm 4, see the top of this file; a new path has taken the first one.

    `after_step`, if there is one, is called after each step.
    """
    for _ in range(n_steps):
        path.carry_momentum()
        path.update_velocity()
        path.extend_warp()
        if after_step is not None:
            after_step()


def _shoot_in_blocks(
    fields: Array,
    penalty: tuple[float, ...],
    voxel_size: tuple[float, ...],
    n_steps: int,
    velocity: Array | None = None,
    inverse: Array | None = None,
) -> Array:
    """Return displacements of velocities (N, d, *space), a block of images at a time.

    `velocity`, of the same shape, is filled with the velocity at the end of the path, and `inverse`
    with the displacement of the inverse.
    """
    _, d, *space = fields.shape
    lanes = lanes_per_block(d, tuple(space), fields.itemsize)
    blocks = slabs(len(fields), -(-len(fields) // lanes))
    is_plane = is_small_plane(tuple(space), len(fields) // max(1, len(blocks)))
    make_path: type[BlockPath] = PlanePath if is_plane else BlockPath
    operator, greens_function = (
        (plane_symbol if is_plane else packed_symbol)(
            penalty, tuple(space), voxel_size, fields.dtype, inverse=inverse
        )
        for inverse in (False, True)
    )
    displacement = np.empty_like(fields)

    def shoot_block(bounds: tuple[int, int]) -> None:
        part = slice(*bounds)
        path = make_path(fields[part], operator, greens_function, n_steps)
        invert_step = _begin_inverse(path, n_steps, inverse, part)
        n_taken = 0
        if isinstance(path, PlanePath) and invert_step is None:
            n_taken = path.take_short_steps(n_steps - 1)
        follow(path, n_steps - 1 - n_taken, invert_step)
        displacement[part] = path.displacement
        if velocity is not None:
            velocity[part] = path.velocity

    if len(blocks) >= n_threads():
        with one_blas_thread if is_plane else nullcontext():
            run_parallel(shoot_block, blocks)
    else:
        for bounds in blocks:
            shoot_block(bounds)
    return displacement


def _begin_inverse(
    path: Any, n_steps: int, inverse: Array | None, part: slice
) -> Callable[[], None] | None:
    """Set the inverse of the first step of a path, and return what adds that of the last one."""
    if inverse is None:
        return None
    back = InverseOfSteps(n_steps, inverse[part])
    back.extend(path.velocity)
    return lambda: back.extend(path.velocity)


def _shoot_on_device(
    fields: Array,
    penalty: tuple[float, ...],
    voxel_size: tuple[float, ...],
    n_steps: int,
    velocity: Array | None = None,
    inverse: Array | None = None,
) -> Array:
    """Do what `_shoot_in_blocks` does on a GPU, as many images at a time as its memory bears."""
    fields = array_namespace(fields).ascontiguousarray(fields)
    displacement = np.empty_like(fields)
    symbols = [
        symbol_on_device(penalty, fields.shape[2:], voxel_size, inverse=inverse)
        for inverse in (False, True)
    ]
    make_path = kernels_for(fields, "anamorph.kernels.cpu.geodesics").DevicePath
    most = max(1, _BYTES_ON_DEVICE // max(1, 4 * math.prod(fields.shape[1:])))
    for first in range(0, len(fields), most):
        part = slice(first, first + most)
        path = make_path(fields[part], *symbols, penalty[0] > 0, n_steps, displacement[part])
        follow(path, n_steps - 1, _begin_inverse(path, n_steps, inverse, part))
        if velocity is not None:
            velocity[part] = path.velocity
    return displacement


def shoot_unfolded(
    v: Array, penalty: Sequence[float], voxel_size: Sequence[float], n_steps: int
) -> Array:
    """Return what `shoot` does, in more steps for the fields that fold, where that cures them.

    Parameters
    ----------
    v : array of shape (N, d, *space)
        Initial velocities in voxels.
    penalty : 5 numbers
    voxel_size : d numbers
    n_steps : int
        The fewest steps.

    Returns
    -------
    array of the shape of v
        Displacements in voxels. What folds however many steps are taken is shot in the fewest.
    """
    displacement = shoot(v, penalty, voxel_size, n_steps)
    folded = np.flatnonzero(count_folds(displacement)[0])
    for factor in MORE_STEPS:
        if not len(folded):
            break
        trial = shoot(v[beside(v, folded)], penalty, voxel_size, factor * n_steps)
        are_cured = count_folds(trial)[0] == 0
        displacement[beside(v, folded[are_cured])] = trial[beside(v, np.flatnonzero(are_cured))]
        folded = folded[~are_cured]
    return displacement


def count_folds(
    displacement: Array, *, between_voxels: bool = False
) -> tuple[IntArray, Float64Array]:
    """Return at how many voxels each warp folds, (N,), and its smallest determinant, (N,).

    A warp folds where its determinant is not positive.

    Parameters
    ----------
    displacement : (N, d, *space)
        Of psi, in voxels, in memory or on a GPU. What is not finite counts as folded.
    between_voxels : bool, default False
        Whether to look also at the corners of the cell that begins at a voxel, where the warp is as
        it is drawn (`corner_determinants`), and not only at central differences.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # far beyond all that is a warp
        determinant = jacobian_determinant(displacement)
        if between_voxels:
            at_corners = corner_determinants(displacement).min(axis=1)
            determinant = np.minimum(determinant, at_corners)
    flat = determinant.reshape(len(determinant), -1)
    is_sound = (flat > 0) & np.isfinite(flat)
    return to_host((~is_sound).sum(axis=1)), to_host(flat.min(axis=1))
