"""Inverses of warps psi = id + displacement: along a geodesic, of any displacement, and of points.

psi is linear within each cell of the grid, and its inverse is that of this very function. Where
determinants at the corners of all cells are positive, a warp of a plane is one-to-one, and there is
exactly one place that it takes to a given point; Newton's method finds most of these places, and a
search of all cells around finds the rest.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.devices import array_namespace, beside, is_on_device, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array
from anamorph.geometry.fields import check_vector_field
from anamorph.geometry.warps import pull_batch
from anamorph.kernels.cpu.cells import find_in_planes, find_in_volumes
from anamorph.kernels.cpu.places import find_by_newton
from anamorph.kernels.threads import n_threads, run_parallel, slabs

_FIND = {2: find_in_planes, 3: find_in_volumes}
_STEP_TOLERANCE = 1e-4  # voxels
_MOST_STEP_ITERATIONS = 50
_LONGEST_NEWTON_STEP = 2.0  # voxels
_SHARE_FOR_NEWTON = 0.9


def invert(displacement: ArrayLike, tolerance: float = 1e-3, max_iterations: int = 20) -> Array:
    """Return the displacement of the inverse of psi = id + displacement.

    Parameters
    ----------
    displacement : array of shape (..., d, *space)
        In voxels, on a periodic grid. psi must be one-to-one: determinants at the corners of all
        cells must be positive, see `corner_determinants`.
    tolerance : float
        Largest distance in voxels between psi(psi^-1(x)) and x; 0.001 by default.
    max_iterations : int
        Iterations of Newton's method before the cells around a voxel are searched; 20 by default.

    Returns
    -------
    array of the shape of displacement
        In voxels.

    Raises
    ------
    ValueError
        If psi is not one-to-one; it names a voxel where it folds.
    """
    warp, d = check_vector_field(displacement, "displacement")
    fields = warp.reshape(-1, d, *warp.shape[-d:])
    inverse = np.empty_like(fields)
    for n, field in enumerate(fields):
        _check_one_to_one(field)
        inverse[n], found = _inverse_of_field(field, -field, tolerance, max_iterations)
        if not bool(found.all()):
            voxel = np.unravel_index(int(np.argmin(to_host(found))), field.shape[1:])
            raise ValueError(
                f"displacement cannot be inverted: nothing is taken to voxel {_plain(voxel)} to "
                f"within {tolerance} voxels, so psi folds; a smoother displacement is needed"
            )
    return inverse.reshape(warp.shape)


def corner_determinants(displacement: ArrayLike) -> Array:
    """Return |D psi| at each corner of each cell of the grid, where psi is linear along each axis.

    Between the corners of a cell of a plane the determinant is between these, so psi is one-to-one
    if and only if all are positive. In 3D that is necessary.

    Parameters
    ----------
    displacement : array of shape (..., d, *space)
        In voxels, on a periodic grid.

    Returns
    -------
    array of shape (..., 2 ** d, *space)
        Of the cell behind each voxel along all axes.
    """
    warp, d = check_vector_field(displacement, "displacement")
    xp: Any = array_namespace(warp)
    corners = []
    slopes = [np.roll(warp, -1, axis) - warp for axis in range(-d, 0)]
    for offsets in product((0, 1), repeat=d):
        columns = []
        for axis, slope in enumerate(slopes):
            # The edge of the cell along this axis that ends at the corner.
            along = [0 if other == axis else -offset for other, offset in enumerate(offsets)]
            edge = np.roll(slope, along, tuple(range(-d, 0)))
            columns.append(list(xp.moveaxis(edge, -d - 1, 0)))
            columns[axis][axis] = 1 + columns[axis][axis]
        corners.append(_determinant(columns))
    determinants: Array = xp.stack(corners, axis=-d - 1)
    return determinants


def _determinant(rows: list[list[Any]]) -> Any:
    """Return determinants of matrices whose entries are fields; their transposes have the same."""
    if len(rows) == 2:
        return rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0]
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) + b * (f * g - d * i) + c * (d * h - e * g)


def _check_one_to_one(field: Array) -> None:
    """Raise a ValueError that names a voxel where psi folds, if it does."""
    if not bool(np.isfinite(field).all()):
        raise ValueError("displacement must be finite, got NaN or infinity")
    smallest = to_host(corner_determinants(field).min(axis=0))
    if smallest.min() > 0:
        return
    voxel = np.unravel_index(int(smallest.argmin()), smallest.shape)
    raise ValueError(
        f"displacement cannot be inverted: psi folds at {int((smallest <= 0).sum())} voxels, most "
        f"at voxel {_plain(voxel)}, where its Jacobian determinant is {smallest[voxel]:.2g}, which "
        "must be positive at all corners of all cells"
    )


def _plain(voxel: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in voxel)


def _inverse_of_field(
    field: Array, start: Array, tolerance: float, max_iterations: int
) -> tuple[Array, BoolArray]:
    """Return the inverse of a displacement (d, *space), and where it was found, (voxel,)."""
    xp, d = array_namespace(field), len(field)
    points = xp.stack(xp.meshgrid(*(xp.arange(n) for n in field.shape[1:]), indexing="ij"))
    points = points.reshape(d, -1).T.astype(np.float64)
    begin = points + start.reshape(d, -1).T
    room = _SHARE_FOR_NEWTON * tolerance  # the rest is for rounding to float32
    places, found = find_places(field, points, begin, room, max_iterations)
    return (places - points).T.reshape(field.shape).astype(field.dtype), found


# ---- points


def move_points(displacement: Array, points: Array) -> Float64Array:
    """Return psi(y) = y + displacement(y) of points y.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels; it is periodic, also beyond the grid.
    points : array of shape (n, d)
        In voxels, the first of which is 0.

    Returns
    -------
    array of shape (n, d)
    """
    moved: Float64Array = points + _interpolate(displacement, points)[0]
    return moved


def find_places(
    displacement: Array,
    points: Array,
    start: Array,
    tolerance: float = 1e-3,
    max_iterations: int = 20,
) -> tuple[Float64Array, BoolArray]:
    """Return the places y that psi takes to points p: psi(y) = p.

    Parameters
    ----------
    displacement : array of shape (d, *space)
        In voxels.
    points : array of shape (n, d)
        p, in voxels.
    start : array of shape (n, d)
        Where to begin to look, and what is returned where no place is found.
    tolerance : float
        Largest distance along an axis between psi(y) and p; 0.001 voxels by default.
    max_iterations : int
        Of Newton's method, before cells are searched; 20 by default.

    Returns
    -------
    places : array of shape (n, d)
    found : array of bool, of shape (n,)
    """
    if not is_on_device(displacement):
        return _find_in_memory(displacement, points, start, tolerance, max_iterations)
    xp = array_namespace(displacement)
    best, places = xp.array(start, np.float64), xp.array(start, np.float64)
    left = xp.arange(len(points))
    for _ in range(max_iterations + 1):
        values, slopes = _interpolate(displacement, places[left])
        residual = places[left] + values - points[left]
        is_far = ~(np.abs(residual).max(axis=1) <= tolerance)
        best[left[~is_far]] = places[left[~is_far]]
        left = left[is_far]
        if len(left) == 0:
            break
        matrix = slopes[is_far] + xp.eye(len(displacement))
        places[left] -= _limited(_solved(matrix, residual[is_far]))
    found = xp.ones(len(points), np.bool_)
    if len(left):
        found[left], best[left] = _search_cells(displacement, points[left], best[left])
    return best, found


def _find_in_memory(
    displacement: Array, points: Array, start: Array, tolerance: float, max_iterations: int
) -> tuple[Float64Array, BoolArray]:
    """Do what `find_places` does, in one compiled call."""
    places, targets = (np.array(some, np.float64) for some in (start, points))
    flat = np.ascontiguousarray(displacement, np.float64).reshape(len(displacement), -1)
    found = np.zeros(len(targets), np.uint8)
    limits = tolerance, max_iterations, _LONGEST_NEWTON_STEP

    def find(bounds: tuple[int, int]) -> None:
        some = slice(*bounds)
        shape = displacement.shape[1:]
        find_by_newton(flat, shape, targets[some], places[some], found[some], *limits)

    run_parallel(find, slabs(len(targets), n_threads()))
    left = np.flatnonzero(found == 0)
    was_found = found.astype(np.bool_)
    if len(left):
        was_found[left], places[left] = _search_cells(displacement, targets[left], places[left])
    return places, was_found


def _solved(matrix: Array, residual: Array) -> Array:
    """Return Newton's steps (n, d); where the matrix is singular, the residual itself."""
    rows = [[matrix[:, i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[1])]
    determinant = _determinant(rows)
    is_regular = np.abs(determinant) > 1e-6
    identity = array_namespace(matrix).eye(matrix.shape[1])
    safe = np.where(is_regular[:, None, None], matrix, identity)
    step: Array = np.linalg.solve(safe, residual[..., None])[..., 0]
    return step


def _limited(steps: Array) -> Array:
    longest = np.abs(steps).max(axis=1, keepdims=True)
    limited: Array = steps * np.minimum(1, _LONGEST_NEWTON_STEP / np.maximum(longest, 1e-30))
    return limited


def _search_cells(displacement: Array, points: Array, start: Array) -> tuple[Array, Array]:
    """Find places in the cells around points, in memory; return which were found, and places."""
    field = np.asarray(to_host(displacement), np.float64)
    d, space = len(field), field.shape[1:]
    flat = np.ascontiguousarray(field.reshape(d, -1))
    reach = np.stack([flat.min(axis=1) - 1e-6, flat.max(axis=1) + 1e-6], axis=1)
    targets, places = (np.array(to_host(some), np.float64) for some in (points, start))
    found = np.zeros(len(targets), np.uint8)

    def search(bounds: tuple[int, int]) -> None:
        some = slice(*bounds)
        _FIND[d](flat, space, targets[some], reach, places[some], found[some])

    run_parallel(search, slabs(len(targets), n_threads()))
    return beside(points, found.astype(np.bool_)), beside(points, places)


def _interpolate(displacement: Array, points: Array) -> tuple[Float64Array, Float64Array]:
    """Return a displacement at points (n, d), and its slopes in their cells, (n, d, d).

    Slopes are derivatives of component i along axis j.
    """
    xp, d = array_namespace(displacement), len(displacement)
    space, flat = displacement.shape[1:], displacement.reshape(d, -1)
    whole = np.floor(points)
    near = whole.astype(np.int64)
    fractions = (points - whole).T
    values = xp.zeros((d, len(points)))
    slopes = xp.zeros((d, d, len(points)))
    for corner in product((0, 1), repeat=d):
        voxel = xp.zeros(len(points), np.int64)
        for axis, offset in enumerate(corner):
            voxel = voxel * space[axis] + (near[:, axis] + offset) % space[axis]
        corner_values = flat[:, voxel].astype(np.float64)
        weights = [f if offset else 1 - f for f, offset in zip(fractions, corner, strict=True)]
        values += math.prod(weights) * corner_values
        for axis, offset in enumerate(corner):
            others = math.prod(weight for k, weight in enumerate(weights) if k != axis)
            slopes[:, axis] += (2 * offset - 1) * others * corner_values
    return values.T, np.moveaxis(slopes, -1, 0)


# ---- geodesics


class InverseOfSteps:
    """The inverse of psi = (id - v0/T) o (id - v1/T) o ..., which grows with psi.

    The inverse of one more step s = id - v/T comes last: psi^-1 becomes s^-1 o psi^-1. It is the
    exact one, y with y - v(y)/T = x, and not id + v/T; and places are followed from voxel to voxel
    without ever interpolating the inverse itself.

    Parameters
    ----------
    n_steps : int
        T.
    out : (N, d, *space)
        Holds the displacement of the inverse.
    """

    def __init__(self, n_steps: int, out: Array) -> None:
        self._step = np.float32(1 / n_steps)
        self._out = out
        out[...] = 0

    def extend(self, velocity: Array) -> None:
        """Add the inverse of the step by a velocity (N, d, *space)."""
        step = array_namespace(velocity).ascontiguousarray(velocity * self._step)
        before = self._out.copy()
        self._out += step
        for _ in range(_MOST_STEP_ITERATIONS):
            further = before + pull_batch(step, self._out)
            change = float(np.abs(further - self._out).max())
            self._out[...] = further
            if change <= _STEP_TOLERANCE:
                return


def polished_inverse(displacement: Array, inverse: Array, tolerance: float = 1e-3) -> Array:
    """Return an approximate inverse made exact for psi as it is interpolated on the grid.

    psi is composed of steps by interpolation, which rounds it off a little; its inverse along the
    geodesic is not, and up to some tenths of a voxel away. Where psi folds, what was given stays.

    Parameters
    ----------
    displacement, inverse : arrays of shape (N, d, *space)
    tolerance : float
        Largest distance in voxels between psi(psi^-1(x)) and x; 0.001 by default.

    Returns
    -------
    array of shape (N, d, *space)
    """
    polished = np.empty_like(inverse)
    for n, (field, start) in enumerate(zip(displacement, inverse, strict=True)):
        polished[n] = _inverse_of_field(field, start, tolerance, 20)[0]
    return polished
