"""Poses of images: what a model says of images that are turned, shifted or of another size.

With a pose R_n = exp(q_n), image n at voxel x is explained by the appearance at psi_n(R_n x): the
displacement of psi is interpolated at R_n x, and the appearance once, at the end.

Where R_n x or psi_n(R_n x) is outside of the template's box there is no appearance. Such voxels are
explained by a background with a likelihood of its own (`Parameters.background`): they are neither
wrapped around nor missing, so that no image gains by leaving.

ln p(f | z) of a `PosedGenerator` is ln p(f, q | z): with the log-likelihood of the background, and
the prior of the pose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from anamorph.arrays.devices import array_namespace, beside, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry.coarsen import block_means
from anamorph.geometry.operators import packed_pairs
from anamorph.geometry.pose import PoseFrame
from anamorph.geometry.warps import differentiate, pull_batch, push_batch
from anamorph.likelihoods.base import Derivatives
from anamorph.model.generator import Generator
from anamorph.model.guesses import Guesses
from anamorph.model.intensity import deviations
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.model.tangents import Tangents

_EDGE = 1e-3  # voxels by which rounding may take a voxel out of the box
_LEAST_SEEN = 0.999
_IMAGES_AT_A_TIME = 256


@dataclass(frozen=True)
class PosedGenerator(Generator):
    """What a model says of some images with given poses, at given latents.

    Attributes
    ----------
    base : Generator
        The same model without poses.
    frame : PoseFrame
        Its voxels are those of the images.
    poses : (N, P)
        q, one for each of the images that methods are given.
    start : (N, K), optional
        Latents that poses were found with, to start from.
    """

    base: Generator
    frame: PoseFrame
    poses: Float64Array
    start: Float64Array | None = None
    _memory: dict[str, tuple[Array | None, Array, BoolArray]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, base: Generator, poses: Float64Array, frame: PoseFrame | None = None
    ) -> PosedGenerator:
        """Return a generator of images with poses (N, P), by default on the grid of the model."""
        frame = base.settings.frame if frame is None else frame
        return cls(
            base.settings,
            base.parameters,
            base,
            frame,
            poses,
            residual=base.residual,
            unresolved=base.unresolved,
            tangents=base.tangents,
        )

    def linearised(self, tangents: Tangents) -> PosedGenerator:  # noqa: D102
        return PosedGenerator.of(self.base.linearised(tangents), self.poses, self.frame)

    def only(self, which: IntArray) -> PosedGenerator:  # noqa: D102
        return PosedGenerator.of(self.base.only(which), self.poses[to_host(which)], self.frame)

    def known_latents(self) -> Float64Array | None:  # noqa: D102
        return self.start

    @property
    def guesses(self) -> Guesses:
        """Those of the model, without poses."""
        return self.base.guesses

    # ---- where images look

    def placed(self, displacement: Array | None) -> Array:  # noqa: D102
        return self._place(displacement)[0]

    def placed_inverse(self, displacement: Array | None) -> Array:
        """Return R^-1 psi^-1(y) - y, (N, d, *space), given the displacement of psi^-1."""
        matrices = self.frame.matrices(-self.poses)  # exp(-q) is the inverse of exp(q)
        places = self.frame.places(matrices, self.parameters.mean)
        if displacement is not None:
            linear = beside(places, matrices[:, :, :-1], np.float32)
            places = places + np.einsum("nij,nj...->ni...", linear, displacement)
        total: Array = places - voxel_places(self.frame.space, places)
        return total

    def unplaced(self, covector: Array) -> Array:  # noqa: D102
        return push_batch(covector, self.placed(None))

    def _place(self, displacement: Array | None) -> tuple[Array, BoolArray]:
        """Return psi(R x) - x, (N, d, *space), and where the template has nothing, (N, *space)."""
        name = "pose" if displacement is None else "warp"
        if name in self._memory and self._memory[name][0] is displacement:
            return self._memory[name][1:]
        total: Array
        if displacement is None:
            matrices = self.frame.matrices(self.poses)
            places = self.frame.places(matrices, self.parameters.mean)
            total = places - voxel_places(self.frame.space, places)
            outside = is_outside(places)
        else:
            moved, outside = self._place(None)
            total = pull_batch(displacement, moved)
            total += moved
            outside = outside | is_outside(total + voxel_places(self.frame.space, total))
        self._memory[name] = displacement, total, outside
        return total, outside

    # ---- what they see there

    def observed(self, images: Array, displacement: Array | None) -> Array:  # noqa: D102
        outside = self._place(displacement)[1][:, None]
        return np.where(outside, np.float32(np.nan), images)

    def warp(self, appearance: Array, displacement: Array | None) -> Array:
        """Return the appearance at psi(R x), and that of the background outside of the box."""
        total, outside = self._place(displacement)
        warped = pull_batch(appearance, total)
        return np.where(outside[:, None], self._background(warped), warped)

    def in_own_intensities(  # noqa: D102
        self, images: Array, expected: Array, displacement: Array | None
    ) -> tuple[Array, Array]:
        own, gain = super().in_own_intensities(images, expected, displacement)
        outside = self._place(displacement)[1][:, None]  # where images are compared as they are
        return np.where(outside, expected, own), np.where(outside, np.float32(1), gain)

    def log_likelihood(  # noqa: D102
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Float64Array:
        inside = super().log_likelihood(
            appearance, displacement, self.observed(images, displacement)
        )
        return inside + self._log_outside(images, displacement)

    def warped_derivatives(  # noqa: D102
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> Derivatives:
        inside = super().warped_derivatives(
            appearance, displacement, self.observed(images, displacement)
        )
        values = inside.log_likelihood + self._log_outside(images, displacement)
        return replace(inside, log_likelihood=values)

    def _log_outside(self, images: Array, displacement: Array | None) -> Float64Array:
        """Return the log-likelihood of the background, and the log-prior of the pose, (N,)."""
        prior: Float64Array = beside(images, self.frame.log_prior(self.poses), np.float64)
        outside = self._place(displacement)[1][:, None]
        if not outside.any():
            return prior
        rest = np.where(outside, images, np.float32(np.nan))
        level = np.broadcast_to(self._background(images), images.shape)
        level = array_namespace(images).ascontiguousarray(level)
        precision = self.parameters.known_background[1]
        values = self.settings.likelihood.log_likelihood(level, rest, precision)
        if self.settings.matches_intensities:
            values = values + self._in_units_of_all(images, outside)
        both: Float64Array = prior + self.settings.decimation * values
        return both

    def _in_units_of_all(self, images: Array, outside: BoolArray) -> Float64Array:
        """Return what puts densities of all voxels in one unit, wherever the pose puts them, (N,).

        That of voxels inside is the deviation of these (`model.intensity`), which an image could
        make smaller by leaving, and voxels outside have none. It becomes that of all voxels.
        """
        n_inside, inside = deviations(
            np.where(outside, np.float32(np.nan), images), self.unresolved
        )
        n_outside = (outside & ~np.isnan(images)).sum(axis=tuple(range(2, images.ndim)))
        log_all = np.log(deviations(images, self.unresolved)[1])
        units = n_outside * log_all + n_inside * (log_all - np.log(inside))
        total: Float64Array = units.sum(axis=1)
        return total

    def _background(self, like: Array) -> Array:
        """Return the appearance of the background, (C, 1, ...)."""
        level: Array = beside(like, self.parameters.known_background[0], np.float32)
        return level.reshape(-1, *(1,) * (like.ndim - 2))

    def unposed(self, images: Array) -> Array:
        """Return images at the places of the template, interpolated; NaN where they end."""
        back = PosedGenerator.of(self.base, -self.poses, self.frame)  # exp(-q) undoes exp(q)
        total, outside = back._place(None)
        pulled = pull_batch(np.nan_to_num(images), total)
        seen = pull_batch((~np.isnan(images)).astype(np.float32), total)
        return np.where(outside[:, None] | (seen < _LEAST_SEEN), np.float32(np.nan), pulled)

    # ---- derivatives with respect to the pose

    def pose_derivatives(
        self, appearance: Array, displacement: Array | None, images: Array
    ) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return ln p(f, q | z), and gradient and Hessian of -ln p with respect to a pose after R.

        With R becoming exp(e) R, a place y = R x moves by E_p y for each coordinate of e, and the
        warped appearance changes by grad a(psi(y)) . D psi(y) E_p y.

        Returns
        -------
        log_likelihood : (N,)
        gradient : (N, P)
        hessian : (N, P, P)
            That of Gauss-Newton. The prior is in neither of the two.
        """
        warped = self.warped_derivatives(appearance, displacement, images)
        force, stiffness = self._motion_derivatives(appearance, displacement, warped)
        xp, n_dims, n_images = array_namespace(images), self.frame.n_dims, len(images)
        places = self.placed(None) + voxel_places(self.frame.space, force)
        centre = beside(force, self.frame.centre, np.float32).reshape(-1, *(1,) * n_dims)
        ones = xp.ones((n_images, 1, math.prod(self.frame.space)), np.float32)
        lever = xp.concatenate([(places - centre).reshape(n_images, n_dims, -1), ones], axis=1)
        first = force.reshape(n_images, n_dims, -1) @ lever.swapaxes(1, 2)
        upper = np.triu_indices(n_dims + 1)
        products = lever[:, upper[0]] * lever[:, upper[1]]
        packed = stiffness.reshape(n_images, -1, products.shape[2]) @ products.swapaxes(1, 2)
        return (
            to_host(warped.log_likelihood),
            *self._contracted(to_host(first), to_host(packed), upper),
        )

    def _contracted(
        self, first: Array, packed: Array, upper: tuple[IntArray, ...]
    ) -> tuple[Float64Array, Float64Array]:
        """Return gradient and Hessian, given moments of force and stiffness about the centre."""
        n_dims, tangents = self.frame.n_dims, self.frame.tangents
        second = np.empty((len(packed), n_dims, n_dims, n_dims + 1, n_dims + 1))
        for number, (i, j) in enumerate(packed_pairs(n_dims)):
            for place, (k, m) in enumerate(zip(*upper, strict=True)):
                second[:, i, j, k, m] = second[:, j, i, m, k] = packed[:, number, place]
                second[:, j, i, k, m] = second[:, i, j, m, k] = packed[:, number, place]
        gradient = np.einsum("pik,nik->np", tangents, first.astype(np.float64))
        hessian = np.einsum("pik,nijkm,qjm->npq", tangents, second, tangents, optimize=True)
        return gradient, hessian

    def _motion_derivatives(
        self, appearance: Array, displacement: Array | None, warped: Derivatives
    ) -> tuple[Array, Array]:
        """Return derivatives of -ln p with respect to y = R x, (N, d, voxel) and packed."""
        total, n_images, space = self.placed(displacement), len(appearance), self.frame.space
        gradients = self.image_gradients(appearance)  # (N, C, d, voxel)
        pulled = pull_batch(gradients.reshape(n_images, -1, *space), total)
        force, stiffness = self.motion_derivatives(pulled.reshape(gradients.shape), warped)
        force = -force
        if displacement is None:
            return force, stiffness
        return _through(self._jacobian(displacement), force, stiffness)

    def _jacobian(self, displacement: Array) -> Array:
        """Return D psi at y, (N, d, d, *space)."""
        n_dims = self.frame.n_dims
        slopes = differentiate(displacement, n_dims)  # (N, i, j, *space)
        flat = slopes.reshape(len(slopes), n_dims * n_dims, *self.frame.space)
        contiguous = array_namespace(flat).ascontiguousarray(flat)
        jacobian = pull_batch(contiguous, self.placed(None)).reshape(slopes.shape)
        for i in range(n_dims):
            jacobian[:, i, i] += 1
        return jacobian


def _through(jacobian: Array, force: Array, stiffness: Array) -> tuple[Array, Array]:
    """Return J'g, (N, d, *space), and J'HJ, packed: derivatives one map earlier."""
    n_dims = force.shape[1]
    place = {pair: number for number, pair in enumerate(packed_pairs(n_dims))}
    full = [
        [stiffness[:, place[min(i, j), max(i, j)]] for j in range(n_dims)] for i in range(n_dims)
    ]
    turned = [
        [sum(full[i][k] * jacobian[:, k, j] for k in range(n_dims)) for j in range(n_dims)]
        for i in range(n_dims)
    ]
    earlier = np.empty_like(stiffness)
    for number, (i, j) in enumerate(packed_pairs(n_dims)):
        earlier[:, number] = sum(jacobian[:, k, i] * turned[k][j] for k in range(n_dims))
    return (jacobian * force[:, :, None]).sum(axis=1), earlier


def voxel_places(space: tuple[int, ...], like: Array) -> Array:
    """Return the coordinates of all voxels of a grid, (d, *space), beside an array."""
    places: Array = beside(like, np.indices(space, dtype=np.float32))
    return places


def is_outside(places: Array) -> BoolArray:
    """Tell which places (N, d, *space) are not within the box, (N, *space)."""
    outside: BoolArray = array_namespace(places).zeros((len(places), *places.shape[2:]), bool)
    for axis, length in enumerate(places.shape[2:]):
        outside |= (places[:, axis] < -_EDGE) | (places[:, axis] > length - 1 + _EDGE)
    return outside


def share_within(frame: PoseFrame, poses: Float64Array) -> float:
    """Return how much of the voxels of images with poses (N, P) is within the template's box."""
    n_outside = 0
    for first in range(0, len(poses), _IMAGES_AT_A_TIME):
        matrices = frame.matrices(poses[first : first + _IMAGES_AT_A_TIME])
        n_outside += int(is_outside(frame.places(matrices, matrices)).sum())
    return 1.0 - n_outside / (len(poses) * math.prod(frame.space))


def moved_mean(settings: Settings, parameters: Parameters, pose: Float64Array) -> Array:
    """Return the mean (C, *space) at exp(pose) x: what all images see that had this pose, (P,)."""
    posed = PosedGenerator.of(Generator(settings, parameters), pose[None])
    moved: Array = posed.warp(parameters.mean[None], None)[0]
    return moved


def posed_sums(
    images: Array, poses: Float64Array, frame: PoseFrame
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return how many voxels of posed images fall onto each voxel of the template, and sums.

    Voxels of images are shared out linearly, as by push, and nothing that is outside.

    Parameters
    ----------
    images : (N, C, *box)
    poses : (N, P)
    frame : PoseFrame
        Of the grid of the sums, whose voxels may be made of several.

    Returns
    -------
    count, total : (C, *space)
    squares : (C,)
    """
    xp, small = array_namespace(images), block_means(images, frame.factors)
    places = frame.places(frame.matrices(poses), small)
    outside = is_outside(places)[:, None]
    moved = places - voxel_places(frame.space, small)
    seen = ~(np.isnan(small) | outside)
    values = np.where(seen, small, np.float32(0))
    count = push_batch(xp.ascontiguousarray(seen.astype(np.float32)), moved)
    total = push_batch(xp.ascontiguousarray(values), moved)
    squares = np.square(values, dtype=np.float64).sum(axis=(0, *range(2, values.ndim)))
    return count.sum(axis=0, dtype=np.float64), total.sum(axis=0, dtype=np.float64), squares
