"""Poses: rigid and affine maps of the whole grid, as exponentials of a few numbers q.

A pose R = exp(q) maps places in an image to places in the template, in mm about the centre of the
box: R = expm(sum_p q_p E_p), where the matrices E_p are a basis of the Lie algebra of the group.
Groups are closed: what two poses do together, and what undoes one, is a pose of the same group.

Coordinates q, in this order:

    shift1 ... shiftd     translation along each axis, in mm
    turn12, turn13, ...   rotation in the plane of two axes, in radian
    zoom                  logarithm of the size, of a similarity
    zoom1 ... zoomd       logarithms of the size along each axis, of an affine map
    shear12, ...          symmetric shear of two axes

Unlike warps, poses do not live on a torus: what they take out of the box is outside of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
import scipy.linalg

from anamorph.arrays.devices import array_namespace, beside
from anamorph.arrays.typing import Array, BoolArray, Float64Array

NONE = "none"
#: Groups of maps, each within the next.
ALIGNMENTS = (NONE, "translation", "rigid", "similarity", "affine")

# Standard deviations of the prior: of shifts as a share of the box, of the others as they are. Weak
# beside thousands of voxels, they only decide where images do not.
_SHIFT_SPREAD, _TURN_SPREAD, _ZOOM_SPREAD, _SHEAR_SPREAD = 0.5, 1.0, 0.5, 0.5
_SERIES_BELOW, _SERIES_TERMS = 0.05, 8
_MOST_ROOTS, _MOST_ROOT_ITERATIONS, _ROOT_TOLERANCE = 40, 60, 1e-15
_LARGEST_ZOOM = 1e6  # of matrices that have a logarithm


@lru_cache(maxsize=16)
def pose_names(align: str, n_dims: int) -> tuple[str, ...]:
    """Return the names of the coordinates of a pose, as in tables.

    Parameters
    ----------
    align : str
        One of `ALIGNMENTS`.
    n_dims : int
        d, 2 or 3.
    """
    rank = ALIGNMENTS.index(align)
    axes = range(1, n_dims + 1)
    pairs = [f"{i}{j}" for i, j in combinations(axes, 2)]
    names = [f"shift{i}" for i in axes] if rank >= ALIGNMENTS.index("translation") else []
    if rank >= ALIGNMENTS.index("rigid"):
        names += [f"turn{pair}" for pair in pairs]
    if align == "similarity":
        names += ["zoom"]
    if align == "affine":
        names += [f"zoom{i}" for i in axes] + [f"shear{pair}" for pair in pairs]
    return tuple(names)


@lru_cache(maxsize=16)
def pose_basis(align: str, n_dims: int) -> Float64Array:
    """Return the matrices E_p of a group, (P, d + 1, d + 1), in homogeneous coordinates."""
    names = pose_names(align, n_dims)
    basis = np.zeros((len(names), n_dims + 1, n_dims + 1))
    for matrix, name in zip(basis, names, strict=True):
        kind, axes = name.rstrip("123"), [int(digit) - 1 for digit in name if digit.isdigit()]
        if kind == "shift":
            matrix[axes[0], n_dims] = 1
        elif kind == "turn":
            matrix[axes[0], axes[1]], matrix[axes[1], axes[0]] = -1, 1
        elif kind == "shear":
            matrix[axes[0], axes[1]] = matrix[axes[1], axes[0]] = 1
        else:
            for axis in axes or range(n_dims):
                matrix[axis, axis] = 1
    basis.flags.writeable = False
    return basis


def pose_matrices(poses: Float64Array, align: str, n_dims: int) -> Float64Array:
    """Return R = exp(q) of poses (N, P), (N, d + 1, d + 1), in mm about the centre of the box."""
    algebra = np.tensordot(poses, pose_basis(align, n_dims), axes=1)
    if not len(algebra):
        return algebra
    return np.asarray(scipy.linalg.expm(algebra), np.float64)


def pose_logarithms(matrices: Float64Array, align: str) -> Float64Array:
    """Return the poses q, (N, P), of matrices (N, d + 1, d + 1) of a group.

    What matrices have that the group has not is left out. Matrices without a real logarithm, which
    turn a place to where it would be mirrored, have NaN.
    """
    n_dims = matrices.shape[-1] - 1
    basis = pose_basis(align, n_dims).reshape(-1, (n_dims + 1) ** 2)
    algebra = _logarithm(matrices).reshape(len(matrices), (n_dims + 1) ** 2)
    # Matrices of the basis are orthogonal to each other.
    return np.asarray(algebra @ basis.T / np.square(basis).sum(axis=1))


def compose_poses(
    outer: Float64Array, inner: Float64Array, align: str, n_dims: int
) -> Float64Array:
    """Return the poses (N, P) of exp(outer) exp(inner), each (N, P) or one for all, (1, P)."""
    matrices = pose_matrices(outer, align, n_dims) @ pose_matrices(inner, align, n_dims)
    return pose_logarithms(matrices, align)


def _logarithm(matrices: Float64Array) -> Float64Array:
    """Return principal logarithms of matrices (N, n, n), by square roots and a series."""
    identity, factor = np.eye(matrices.shape[-1]), 2.0
    is_finite: BoolArray = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
    eigenvalues = np.linalg.eigvals(np.where(is_finite[:, None, None], matrices, identity))
    is_far = (np.abs(eigenvalues) < 1 / _LARGEST_ZOOM) | (np.abs(eigenvalues) > _LARGEST_ZOOM)
    is_mirrored = (eigenvalues.imag == 0) & (eigenvalues.real <= 0)
    has_none = ~is_finite | (is_far | is_mirrored).any(axis=1)
    root = np.where(has_none[:, None, None], identity, matrices)
    for _ in range(_MOST_ROOTS):
        if not len(root) or np.abs(root - identity).max() < _SERIES_BELOW:
            break
        root, factor = _square_root(root), 2 * factor
    # ln A = 2 artanh((A - I) (A + I)^-1)
    ratio = np.linalg.solve((root + identity).swapaxes(1, 2), (root - identity).swapaxes(1, 2))
    ratio = ratio.swapaxes(1, 2)
    square, power, total = ratio @ ratio, ratio, np.zeros_like(ratio)
    for term in range(_SERIES_TERMS):
        total = total + power / (2 * term + 1)
        power = power @ square
    total[has_none] = np.nan
    return np.asarray(factor * total)


def _square_root(matrices: Float64Array) -> Float64Array:
    """Return principal square roots of matrices (N, n, n), by the iteration of Denman-Beavers."""
    root, inverse = matrices, np.broadcast_to(np.eye(matrices.shape[-1]), matrices.shape)
    for _ in range(_MOST_ROOT_ITERATIONS):  # few, but one for each binary digit near half turns
        before = root
        root, inverse = (
            (root + np.linalg.inv(inverse)) / 2,
            (inverse + np.linalg.inv(root)) / 2,
        )
        if len(root) and np.abs(root - before).max() < _ROOT_TOLERANCE * np.abs(root).max():
            break
    return np.asarray(root)


@dataclass(frozen=True)
class PoseFrame:
    """The grid that poses act on: the voxels of a box, or larger voxels made of them.

    Attributes
    ----------
    align : str
        The group, one of `ALIGNMENTS`.
    box : tuple of int
        Shape of the grid of the model.
    voxel_size : tuple of float
        Of that grid, in mm.
    factors : tuple of int
        How many voxels of that grid a voxel is made of along each axis; 1 by default.
    """

    align: str
    box: tuple[int, ...]
    voxel_size: tuple[float, ...]
    factors: tuple[int, ...] = ()

    @property
    def n_dims(self) -> int:
        """Number d of axes."""
        return len(self.box)

    @property
    def n_coordinates(self) -> int:
        """Number P of coordinates of a pose."""
        return len(pose_names(self.align, self.n_dims))

    @cached_property
    def _factors(self) -> tuple[int, ...]:
        return self.factors or (1,) * self.n_dims

    @cached_property
    def space(self) -> tuple[int, ...]:
        """Shape of the grid of these voxels."""
        return tuple(-(-n // factor) for n, factor in zip(self.box, self._factors, strict=True))

    @cached_property
    def size(self) -> Float64Array:
        """Size of these voxels in mm, (d,)."""
        return np.multiply(self.voxel_size, self._factors)

    @cached_property
    def centre(self) -> Float64Array:
        """The centre of the box in these voxels, (d,)."""
        return np.subtract(self.box, self._factors) / 2 / self._factors

    @cached_property
    def prior_precision(self) -> Float64Array:
        """Of each coordinate, (P,): a fixed and weak prior of poses, N(0, 1/precision)."""
        spreads = {"turn": _TURN_SPREAD, "zoom": _ZOOM_SPREAD, "shear": _SHEAR_SPREAD}
        extent = np.multiply(self.box, self.voxel_size)
        found = [
            _SHIFT_SPREAD * extent[int(name[-1]) - 1]
            if name.startswith("shift")
            else spreads[name.rstrip("123")]
            for name in pose_names(self.align, self.n_dims)
        ]
        return 1 / np.square(found)

    @cached_property
    def tangents(self) -> Float64Array:
        """How a place y moves with each coordinate of a pose that follows, (P, d, d + 1).

        In voxels: dy = E_p (y - centre, 1).
        """
        return self._in_voxels(pose_basis(self.align, self.n_dims))

    def matrices(self, poses: Float64Array) -> Float64Array:
        """Return R of poses (N, P) in voxels about the centre, (N, d, d + 1)."""
        return self._in_voxels(pose_matrices(poses, self.align, self.n_dims))

    def poses_of(self, matrices: Float64Array) -> Float64Array:
        """Return the poses (N, P) of such matrices (N, d, d + 1)."""
        whole = np.zeros((len(matrices), self.n_dims + 1, self.n_dims + 1))
        whole[:, :-1] = matrices * self.size[:, None] / np.append(self.size, 1.0)
        whole[:, -1, -1] = 1
        return pose_logarithms(whole, self.align)

    def composed(self, outer: Float64Array, inner: Float64Array) -> Float64Array:
        """Return the poses (N, P) of exp(outer) exp(inner)."""
        return compose_poses(outer, inner, self.align, self.n_dims)

    def log_prior(self, poses: Float64Array) -> Float64Array:
        """Return ln p(q) of poses (N, P) but for a constant, (N,)."""
        values: Float64Array = -0.5 * (np.square(poses) * self.prior_precision).sum(axis=1)
        return values

    def motion(self, poses: Float64Array) -> Float64Array:
        """Return how far small poses (N, P) move places, in voxels, at most about, (N,)."""
        reach = np.append(np.divide(self.space, 2), 1.0)
        moved = np.abs(np.tensordot(poses, self.tangents, axes=1)) @ reach
        return np.asarray(moved.max(axis=1))

    def places(self, matrices: Float64Array, like: Array) -> Array:
        """Return R x for every voxel x, (N, d, *space), float32, in memory or on a GPU.

        Parameters
        ----------
        matrices : (N, d, d + 1)
            As `matrices` returns them.
        like : array
            Where to compute.
        """
        xp = array_namespace(like)
        axes = [xp.arange(n, dtype=np.float32) for n in self.space]
        linear = beside(like, matrices, np.float32)
        origin = (matrices[:, :, -1] + self.centre) - matrices[:, :, :-1] @ self.centre
        places: Array = beside(like, origin, np.float32).reshape(*origin.shape, *(1,) * self.n_dims)
        for axis, coordinates in enumerate(axes):
            shape = [1] * self.n_dims
            shape[axis] = -1
            factors = linear[:, :, axis].reshape(*origin.shape, *(1,) * self.n_dims)
            places = places + factors * coordinates.reshape(shape)
        return places

    def moved_points(self, pose: Float64Array, points: Float64Array) -> Float64Array:
        """Return R of points (n, d) in voxels, of one pose (P,)."""
        matrix = self.matrices(pose[None])[0]
        moved: Float64Array = (points - self.centre) @ matrix[:, :-1].T + matrix[:, -1]
        return moved + self.centre

    def _in_voxels(self, matrices: Float64Array) -> Float64Array:
        """Return matrices (n, d + 1, d + 1) in mm as (n, d, d + 1) in voxels."""
        return np.asarray(matrices[:, :-1] * np.append(self.size, 1.0) / self.size[:, None])


def pose_levels(
    box: tuple[int, ...], voxel_size: tuple[float, ...], fewest: int
) -> list[tuple[int, ...]]:
    """Return factors of ever larger voxels, as cubic as can be: the finest grid comes first.

    Parameters
    ----------
    box : tuple of int
        Shape of the grid.
    voxel_size : tuple of float
    fewest : int
        No grid but the first has its longest axis shorter than this.
    """
    smallest, levels = min(voxel_size), [(1,) * len(box)]
    extent = max(n * size for n, size in zip(box, voxel_size, strict=True))
    target = 2 * smallest
    while extent / target >= fewest:
        factors = tuple(
            max(1, min(n, round(target / size))) for n, size in zip(box, voxel_size, strict=True)
        )
        levels.append(factors)
        target *= 2
    return levels
