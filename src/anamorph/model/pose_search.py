"""A first pose for images that may be far from the template: search coarsely, then refine.

On a grid of about a dozen voxels per axis, all translations are tried at once, by correlation, for
each of some hundred rotations and sizes; Gauss-Newton goes on from the best of them, on ever finer
grids. What is compared there are means of blocks of voxels, by least squares: images and what the
template expects, both less the background, so that nothing is outside.

    sum_x m(x) (f(x) - e(A (x + s)))^2 = const + sum_x m(x) e_A(x + s)^2 - 2 f(x) e_A(x + s)

Only the last steps, on the grid of the model, know the likelihood of the images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.linalg import expm

from anamorph.arrays.devices import array_namespace, beside, fourier_namespace, to_host
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.geometry.coarsen import block_means
from anamorph.geometry.pose import PoseFrame, pose_basis, pose_levels, pose_names
from anamorph.geometry.warps import pull_batch
from anamorph.likelihoods import DEFAULT
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.pose_steps import improve_poses
from anamorph.model.posing import is_outside, voxel_places
from anamorph.model.settings import Settings

#: The coarsest grid has at least so many voxels along its longest axis.
COARSEST = 10
_TURN_SPACING, _MOST_SPACINGS = np.deg2rad(15.0), 3  # rotations that are tried: up to 45 degrees
_ZOOMS = (-0.2, 0.0, 0.2)  # logarithms of sizes that are tried
_CANDIDATES_AT_A_TIME = 32
_N_REFINED = 4  # of the best candidates, Gauss-Newton tells which one is the best
_COARSE_STEPS, _FINE_STEPS = 12, 8
_LEAST_WEIGHT = 1e-3  # of a channel, as a share of the largest
_NOISE_LEVEL = 2.0  # standard deviations of the background that are not an object


def search_levels(settings: Settings) -> list[PoseFrame]:
    """Return the grids that poses are searched on, the coarsest first, the model's own last."""
    levels = pose_levels(settings.space, settings.voxel_size, COARSEST)
    return [replace(settings.frame, factors=factors) for factors in reversed(levels)]


def centre_poses(images: Array, background: Float64Array, frame: PoseFrame) -> Float64Array:
    """Return the translations (N, P) that bring centres of mass to the centre of the box.

    Parameters
    ----------
    images : (N, C, *space)
        NaN where missing.
    background : (2, C)
        Mean and precision of what is no object; precisions of 0 are not known.
    frame : PoseFrame
        Of the grid of the images.
    """
    shape = (-1, *(1,) * frame.n_dims)
    level, precision = (beside(images, row, np.float32).reshape(shape) for row in background)
    # In float64, since squares of large intensities are beyond float32.
    excess = np.square(np.nan_to_num(images - level).astype(np.float64))
    limit = np.where(precision > 0, _NOISE_LEVEL**2 / np.where(precision > 0, precision, 1), 0)
    mass = np.where(excess > limit, excess, 0).sum(axis=1)
    poses = np.zeros((len(images), frame.n_coordinates))
    total = to_host(mass.sum(axis=tuple(range(1, mass.ndim)), dtype=np.float64))
    is_seen = total > 0
    for axis, n in enumerate(frame.space):
        others = tuple(a + 1 for a in range(frame.n_dims) if a != axis)
        along = to_host(mass.sum(axis=others, dtype=np.float64)) @ np.arange(n)
        centre = along / np.where(is_seen, total, 1)
        shift = (frame.centre[axis] - centre) * frame.size[axis]
        poses[:, axis] = np.where(is_seen, shift, 0)
    return poses


@dataclass(frozen=True)
class Target:
    """What images are compared with on some grid.

    Attributes
    ----------
    template : (C, *space)
        What is expected, in the units of the images.
    background : (C,)
        What is expected outside.
    frame : PoseFrame
        The grid.
    """

    template: Float32Array
    background: Float64Array
    frame: PoseFrame

    def weights(self) -> Float64Array:
        """Return inverse variances of the channels of the template, (C,)."""
        variance = to_host(self.template.reshape(len(self.template), -1).var(axis=1))
        largest = max(float(variance.max()), 1e-12)
        return np.asarray(1 / np.maximum(variance, _LEAST_WEIGHT * largest), np.float64)

    def generator(self, settings: Settings) -> Generator:
        """Return a model of images that are this template with noise, on this grid."""
        frame, weights = self.frame, self.weights()
        coarse = replace(
            settings,
            likelihood_name=DEFAULT,
            space=frame.space,
            voxel_size=tuple(frame.size.tolist()),
            decimation=1.0,
        )
        nothing = np.zeros((0, *self.template.shape), np.float32)
        parameters = Parameters(
            mean=self.template,
            appearance_basis=nothing,
            shape_basis=nothing,
            basis_energy=np.zeros((0, 0)),
            latent_precision=np.zeros((0, 0)),
            noise_precision=weights,
            background=np.stack([self.background, weights]),
        )
        return Generator(coarse, parameters)

    def beside(self, array: object) -> Target:
        """Return the same where an array is."""
        return replace(self, template=beside(array, self.template, np.float32))


def match_poses(
    settings: Settings, target: Target, images: Array, poses: Float64Array, *, search: bool
) -> Float64Array:
    """Return better poses (N, P) of images (N, C, *space), on the grid of a target.

    Parameters
    ----------
    settings : Settings
    target : Target
    images : (N, C, *space)
        On the grid of the model.
    poses : (N, P)
        Where to start.
    search : bool
        Whether to look far away as well.
    """
    small = block_means(images, target.frame.factors)
    target = target.beside(small)
    generator = target.generator(settings)

    def refine(start: Float64Array, n_steps: int) -> tuple[Float64Array, Float64Array]:
        appearance = np.repeat(target.template[None], len(start), axis=0)
        found = improve_poses(
            generator, small, appearance, None, start, n_steps=n_steps, frame=target.frame
        )
        return found.poses, found.log_likelihood

    if not search:
        return refine(poses, _FINE_STEPS)[0]
    best, value = refine(poses, _COARSE_STEPS)
    for start in far_poses(target, small):
        found, there = refine(start, _COARSE_STEPS)
        is_better = there > value
        best[is_better], value[is_better] = found[is_better], there[is_better]
    return best


def far_poses(target: Target, images: Array) -> list[Float64Array]:
    """Return some starting poses, each (N, P), the best first, that correlation finds."""
    frame = target.frame
    correlation = _Correlation(target, images)
    linear = candidate_matrices(frame)
    costs = np.empty((len(images), len(linear)))
    shifts = np.empty((len(images), len(linear), frame.n_dims))
    for first in range(0, len(linear), _CANDIDATES_AT_A_TIME):
        some = slice(first, first + _CANDIDATES_AT_A_TIME)
        costs[:, some], shifts[:, some] = correlation.best_shifts(linear[some])
    order = np.argsort(costs, axis=1)[:, :_N_REFINED]
    rows, starts = np.arange(len(images)), []
    for chosen in order.T:
        matrices = np.zeros((len(images), frame.n_dims, frame.n_dims + 1))
        matrices[:, :, :-1] = linear[chosen]
        # y - c = A (x + s - c)
        matrices[:, :, -1] = (linear[chosen] @ shifts[rows, chosen][..., None])[..., 0]
        starts.append(frame.poses_of(matrices))
    return starts


@lru_cache(maxsize=8)
def candidate_matrices(frame: PoseFrame) -> Float64Array:
    """Return rotations and sizes that are tried, (n, d, d), in voxels."""
    names = pose_names(frame.align, frame.n_dims)
    turns = [n for n, name in enumerate(names) if name.startswith("turn")]
    zooms = [n for n, name in enumerate(names) if name.startswith("zoom")]
    basis, found = pose_basis(frame.align, frame.n_dims), []
    steps = range(-_MOST_SPACINGS, _MOST_SPACINGS + 1)
    for counts in product(steps, repeat=len(turns)):
        if np.square(counts).sum() > _MOST_SPACINGS**2:
            continue
        for zoom in _ZOOMS if zooms else (0.0,):
            pose = np.zeros(len(names))
            pose[turns] = _TURN_SPACING * np.array(counts)
            pose[zooms] = zoom
            found.append(expm(np.tensordot(pose, basis, axes=1))[:-1, :-1])
    return np.asarray(found) * frame.size / frame.size[:, None]


class _Correlation:
    """Images and a template on a grid with room around them, ready to be correlated."""

    def __init__(self, target: Target, images: Array) -> None:
        frame, xp = target.frame, array_namespace(images)
        self._room = tuple(-(-n // 2) for n in frame.space)
        self._space = tuple(n + 2 * room for n, room in zip(frame.space, self._room, strict=True))
        self._axes = tuple(range(-frame.n_dims, 0))
        self._fourier, self._target = fourier_namespace(images), target
        self._padded = PoseFrame(
            frame.align, self._space, tuple(frame.size.tolist())
        )  # the centre of the box is the centre of this one
        self._offset = frame.centre + self._room - self._padded.centre
        shape = (-1, *(1,) * frame.n_dims)
        level = beside(images, target.background, np.float32).reshape(shape)
        scale = np.sqrt(beside(images, target.weights(), np.float32)).reshape(shape)
        contrast = np.nan_to_num((images - level) * scale)
        self._images = xp.conj(self._transform(self._pad(contrast, at_corner=True)))
        seen = (~np.isnan(images)).astype(np.float32)
        self._seen = xp.conj(self._transform(self._pad(seen, at_corner=True)))
        self._template = self._pad(((target.template - level) * scale)[None], at_corner=False)

    def _pad(self, images: Array, *, at_corner: bool) -> Array:
        rooms = [(0, 2 * room) if at_corner else (room, room) for room in self._room]
        padded: Array = array_namespace(images).pad(images, [(0, 0), (0, 0), *rooms])
        return padded

    def _transform(self, images: Array) -> Array:
        spectrum: Array = self._fourier.rfftn(images.astype(np.float32), axes=self._axes)
        return spectrum

    def best_shifts(self, linear: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the least costs (N, n) of images with A of (n, d, d), and shifts (N, n, d)."""
        warped = self._turned(linear)
        first, second = self._transform(warped), self._transform(np.square(warped))
        reach = tuple(slice(0, 2 * room + 1) for room in self._room)
        lengths = tuple(2 * room + 1 for room in self._room)
        costs = np.empty((len(self._images), len(linear)))
        places = np.empty((len(self._images), len(linear)), np.intp)
        for n in range(len(self._images)):
            spectrum = (second * self._seen[n] - 2 * first * self._images[n]).sum(axis=1)
            found = self._fourier.irfftn(spectrum, s=self._space, axes=self._axes)
            flat = found[(slice(None), *reach)].reshape(len(linear), -1)
            places[n] = to_host(flat.argmin(axis=1))
            costs[n] = to_host(flat.min(axis=1))
        shifts = np.stack(np.unravel_index(places, lengths), axis=-1) - np.array(self._room)
        return costs, shifts.astype(np.float64)

    def _turned(self, linear: Float64Array) -> Array:
        """Return the template seen through each of some linear maps about its centre."""
        frame = self._padded
        matrices = np.zeros((len(linear), frame.n_dims, frame.n_dims + 1))
        matrices[:, :, :-1] = linear
        # About the centre of the box, which may be off the centre of the padded grid.
        matrices[:, :, -1] = self._offset - linear @ self._offset
        places = frame.places(matrices, self._template)
        outside = is_outside(places)
        repeated = np.repeat(self._template, len(linear), axis=0)
        warped = pull_batch(repeated, places - voxel_places(frame.space, places))
        return np.where(outside[:, None], np.float32(0), warped)
