"""Into the space of the template and back: images, label maps, points and meshes of a fitted model.

Images go through the inverse of psi, points through psi itself: f(x) = a(psi(x)).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from anamorph.arrays.typing import Array, BoolArray, Float32Array, Float64Array
from anamorph.images.arrays import ArrayImages, check_are_several
from anamorph.images.collection import ImageCollection, Images, is_list_of_files
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.format import ImageFormat
from anamorph.images.grid import Grid
from anamorph.images.world import World
from anamorph.likelihoods import DEFAULT, LIKELIHOODS, OF_CLASSES
from anamorph.model.checks import ArgumentError, check_choice
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor
from anamorph.model.warping import (
    INTERPOLATIONS,
    modulated,
    points_from_template,
    points_to_template,
    smoothed,
    volume_changes,
    warped,
    with_warps,
    without_outside,
)
from anamorph.storage.meshes import Mesh
from anamorph.storage.modelfile import Origin

logger = logging.getLogger("anamorph")

INTENSITIES, LABELS = "intensities", "labels"
KINDS = (INTENSITIES, LABELS)

_READ_AS = {INTENSITIES: DEFAULT, LABELS: OF_CLASSES}
_SMALLEST_PROBABILITY = 1e-6
_SAME_VOLUME = 1e-3
_MOST_LEVELS = 24


@dataclass(frozen=True)
class TemplateSpace:
    """The space of the template of a fitted model.

    Attributes
    ----------
    predictor : Predictor
    format : ImageFormat
    origin : Origin
    """

    predictor: Predictor
    format: ImageFormat
    origin: Origin

    @property
    def grid(self) -> Grid:
        """The grid of the model, with its margin."""
        return Grid(self.format.space, self.origin.affine)

    @property
    def world(self) -> World:
        """Where its voxels are."""
        return World.of_grid(self.grid, self.origin.pad)

    def open(self, images: Images, kind: str) -> ImageCollection:
        """Return images of another kind than those of the model, brought onto its grid.

        Parameters
        ----------
        images : arrays on the grid of the model, list of paths, or collection
        kind : {"intensities", "labels"}
        """
        check_choice("kind", kind, KINDS)
        if isinstance(images, ImageCollection):
            return images
        scale = None if kind == LABELS else "none"
        if is_list_of_files(images):
            return FileImages(
                cast(Sequence[Any], images),
                _READ_AS[kind],
                resample=self.origin.affine is not None,
                pad=self.origin.pad,
                onto=self.origin.inner_grid(self.format.space),
                scale=scale,
            )
        array = np.asarray(images)
        check_are_several(array, images)
        channel_axis = (
            -1 if kind == INTENSITIES and array.ndim > len(self.format.space) + 1 else None
        )
        opened = ArrayImages(array, _READ_AS[kind], channel_axis, scale=scale)
        if opened.format.space != self.format.space:
            raise ImageError(
                f"images must have the shape of those that the model was fitted to, "
                f"{self.format.space}, got {opened.format.space}"
            )
        return opened

    def images_to(
        self,
        images: ImageCollection,
        latents: Float64Array,
        *,
        interpolation: str = "linear",
        modulate: bool = False,
        fwhm: float = 0.0,
        poses: Float64Array | None = None,
        residuals: Array | None = None,
    ) -> Float32Array:
        """Return images in the space of the template, (N, C, *space).

        Parameters
        ----------
        images : collection of N images
        latents : array of shape (N, K)
        interpolation : {"linear", "nearest"}
        modulate : bool
            Whether to keep amounts, and not values; False by default.
        fwhm : float
            In mm, or voxels without affine; 0, by default, to smooth nothing.
        poses : array of shape (N, P), optional
            Of the images, where the model has poses: beyond the end of an image is NaN.
        residuals : array of shape (N, d, *space), optional
            Residual velocities of the images; none by default.
        """
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        if modulate and interpolation != "linear":
            raise ArgumentError(f"modulate needs interpolation='linear', got {interpolation!r}")
        _check_numbers(images, latents)

        def bring(generator: Generator, displacement: Array, part: slice) -> Array:
            some = generator.own(_read_unscaled(images, part))
            if modulate:
                kept = some if poses is None else without_outside(some, displacement)
                return modulated(kept, displacement)
            brought = warped(some, displacement, interpolation)
            return brought if poses is None else without_outside(brought, displacement)

        out = self._empty(len(latents), images.format.n_channels)
        with_warps(
            self.predictor,
            latents,
            out,
            bring,
            inverse=not modulate,
            poses=poses,
            residuals=residuals,
        )
        return smoothed(out, fwhm, self.grid.voxel_size)

    def images_from(
        self,
        images: ImageCollection,
        latents: Float64Array,
        *,
        interpolation: str = "linear",
        poses: Float64Array | None = None,
        residuals: Array | None = None,
    ) -> Float32Array:
        """Return images of the template, one or N, in the spaces of images with latents (N, K).

        With poses (N, P), what is beyond the template is NaN. Residual velocities are those of the
        images.
        """
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        is_one = len(images) == 1
        if not is_one:
            _check_numbers(images, latents)

        def bring(generator: Generator, displacement: Array, part: slice) -> Array:
            given = generator.own(_read_unscaled(images, slice(0, 1) if is_one else part))
            shape = (len(displacement), *given.shape[1:])
            some = np.ascontiguousarray(np.broadcast_to(given, shape)) if is_one else given
            brought = warped(some, displacement, interpolation)
            return brought if poses is None else without_outside(brought, displacement)

        out = self._empty(len(latents), images.format.n_channels)
        with_warps(
            self.predictor, latents, out, bring, inverse=False, poses=poses, residuals=residuals
        )
        return out

    def volume_changes(
        self,
        latents: Float64Array,
        *,
        log: bool = False,
        fwhm: float = 0.0,
        residuals: Array | None = None,
    ) -> Float32Array:
        """Return |D psi^-1| of latents (N, K), or its logarithm, (N, 1, *space)."""
        n_folded = np.zeros(len(latents), int)

        def differentiate(generator: Generator, inverse: Array, part: slice) -> Array:
            changes = volume_changes(inverse, log=log)
            is_folded = np.isnan(changes) if log else ~(changes > 0)
            n_folded[part] = is_folded.sum(axis=tuple(range(1, is_folded.ndim)))
            return changes

        out = self._empty(len(latents), 1)
        with_warps(self.predictor, latents, out, differentiate, inverse=True, residuals=residuals)
        if n_folded.any():
            logger.warning(
                "Jacobian determinants of %d of %d images are not positive, at %d voxels%s: warps "
                "fold there; fit with a larger shape_penalty",
                *(np.count_nonzero(n_folded), len(latents), n_folded.sum()),
                " (NaN)" if log else "",
            )
        return smoothed(out, fwhm, self.grid.voxel_size)

    def meshes_to(
        self,
        meshes: Sequence[Mesh],
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Array | None = None,
    ) -> list[Mesh]:
        """Return meshes of images with latents (N, K) in the space of the template."""
        _check_numbers(meshes, latents)
        moved, frame = [], self.predictor.generator.settings.frame
        for n, (mesh, row) in enumerate(zip(meshes, latents, strict=True)):
            voxels, across = self.world.split(mesh.points)
            if poses is not None:
                voxels = frame.moved_points(poses[n], voxels)
            rest = None if residuals is None else residuals[n : n + 1]
            forward = self.predictor.displacement(row[None], residuals=rest)[0]
            there = points_to_template(forward, voxels)
            moved.append(mesh.moved_to(self.world.join(there, across)))
        return moved

    def meshes_from(
        self,
        meshes: Sequence[Mesh],
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Array | None = None,
    ) -> list[Mesh]:
        """Return meshes of the template, one or N, in the spaces of images with latents (N, K)."""
        given = list(meshes) * len(latents) if len(meshes) == 1 else list(meshes)
        _check_numbers(given, latents)
        moved, frame = [], self.predictor.generator.settings.frame
        for n, (mesh, row) in enumerate(zip(given, latents, strict=True)):
            voxels, across = self.world.split(mesh.points)
            rest = None if residuals is None else residuals[n : n + 1]
            forward, inverse = (
                self.predictor.displacement(row[None], inverse=back, residuals=rest)[0]
                for back in (False, True)
            )
            there = points_from_template(forward, inverse, voxels)
            if poses is not None:
                there = frame.moved_points(-poses[n], there)  # exp(-q) is the inverse of exp(q)
            moved.append(mesh.moved_to(self.world.join(there, across)))
        return moved

    def surface(
        self, latents: Float64Array, label: int | None = None, level: float | None = None
    ) -> Mesh:
        """Return the closed surface of the image with latents (1, K).

        Parameters
        ----------
        latents : array of shape (1, K)
        label : int, optional
            Of models of classes; by default all but the first.
        level : float, optional
            Of other models; 0.5 by default for values from 0 to 1.
        """
        self.check_surface(label, level)
        expected = self.predictor.expected_images(latents)[0]
        return surface_of(self._height(expected, label, level), self.world)

    def check_surface(self, label: int | None, level: float | None) -> None:
        """Raise an error unless the model has surfaces of this label, or at this level."""
        kind = LIKELIHOODS[self.format.likelihood]
        _check_volume(len(self.format.space))
        if kind.holds_classes:
            if level is not None:
                raise ArgumentError("level is of models of intensities: give a label")
            self._classes_of(label)
            return
        if label is not None:
            raise ArgumentError(f"label is of models of classes, and this one is {kind.name}")
        if level is None and kind.value_range != (0, 1):
            raise ArgumentError(f"level must be given: images of a {kind.name} model have no 0.5")

    def _height(self, image: Array, label: int | None, level: float | None) -> Array:
        """Return a field that is positive inside of the surface to be found."""
        if LIKELIHOODS[self.format.likelihood].holds_classes:
            inside = self._classes_of(label)
            logs = np.log(np.maximum(image, _SMALLEST_PROBABILITY))
            height: Array = logs[inside].max(axis=0) - logs[~inside].max(axis=0)
            return height
        return np.asarray(image[0] - np.float32(0.5 if level is None else level))

    def _classes_of(self, label: int | None) -> BoolArray:
        labels = np.array(self.format.class_labels)
        inside: BoolArray = np.arange(len(labels)) > 0 if label is None else labels == label
        if not inside.any():
            raise ArgumentError(f"label must be one of {labels.tolist()}, got {label!r}")
        return inside

    def _empty(self, n_images: int, n_channels: int) -> Float32Array:
        return np.empty((n_images, n_channels, *self.format.space), np.float32)


def _read_unscaled(images: ImageCollection, part: slice) -> Float32Array:
    """Return images (n, C, *space) in their own intensities, whatever the model reads them as."""
    some = images.read(part)
    if images.format.scale is not None:
        for image, n in zip(some, range(len(images))[part], strict=True):
            image[...] = images.unscaled(n, image)
    return some


def _check_numbers(things: Any, latents: Float64Array) -> None:
    if len(things) != len(latents):
        raise ValueError(f"there must be one for each of {len(latents)} latents, got {len(things)}")


def _check_volume(n_dims: int) -> None:
    if n_dims != 3:
        raise ImageError("surfaces are of volumes, and this model is of planes")


def surface_of(height: Array, world: World) -> Mesh:
    """Return the closed surface around where a field (nz, ny, nx) is positive.

    Triangles cut corners: where the field is 0 they would enclose some per cent less than the
    voxels with positive values. So they are drawn where the field has the value, close to 0, with
    which both volumes are the same to 0.1 %.

    Parameters
    ----------
    height : array of shape (*space)
        It counts as negative beyond the grid.
    world : World
        Where its voxels are.

    Raises
    ------
    ImageError
        If the field is a plane, has no such place, or scikit-image is not there.
    """
    _check_volume(height.ndim)
    if not height.max() > 0:
        raise ImageError("there is no surface: nothing is inside, try another label or level")
    lowest = min(float(height.min()), -float(height.max()))
    padded = np.pad(np.asarray(height, np.float64), 1, constant_values=lowest)
    wanted = float((height > 0).sum())
    low, high, level = lowest, float(height.max()), 0.0
    for _ in range(_MOST_LEVELS):
        voxels = _triangulated(padded, level)
        if abs(voxels.volume - wanted) <= _SAME_VOLUME * wanted:
            break
        low, high = (level, high) if voxels.volume > wanted else (low, level)
        level = (low + high) / 2
    mesh = Mesh(world.join(voxels.points), voxels.faces)
    return mesh if mesh.volume > 0 else Mesh(mesh.points, mesh.faces[:, ::-1])


def _triangulated(padded: Float64Array, level: float) -> Mesh:
    """Return the surface where a field with one voxel around it has a value, in voxels."""
    try:
        from skimage.measure import marching_cubes
    except ImportError:
        raise ImageError("surfaces need scikit-image: install anamorph[meshes]") from None
    height = padded - level
    height[height == 0] = -1e-12  # corners of triangles would coincide there
    points, faces, *_ = marching_cubes(height, 0.0)
    mesh = Mesh(points.astype(np.float64) - 1, faces.astype(np.int64))
    return mesh if mesh.volume > 0 else Mesh(mesh.points, mesh.faces[:, ::-1])
