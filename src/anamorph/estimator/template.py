"""What a fitted model does in the space of its template: there and back, Jacobians, surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator.fitted import FittedModel
from anamorph.estimator.template_space import LABELS, TemplateSpace
from anamorph.images.collection import ImageCollection, Images
from anamorph.model.checks import ArgumentError
from anamorph.storage.meshes import Mesh, as_meshes, is_mesh


class TemplateMethods(FittedModel):
    """The methods of `ShapeAppearanceModel` that use the space of the template."""

    def to_template(
        self,
        X: Images | Mesh | Sequence[Mesh],  # noqa: N803
        z: ArrayLike | None = None,
        *,
        kind: str | None = None,
        interpolation: str = "linear",
        modulate: bool = False,
        fwhm: float = 0.0,
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Any:
        """Return images, label maps, points or meshes in the space of the template.

        Parameters
        ----------
        X : images, or meshes
            One for each row of `z`. `Mesh` holds points in the world, and perhaps triangles.
        z : array of shape (N, K), optional
            Latents of the images; by default they are found from X, which must then be images of
            the kind that the model was fitted to.
        kind : {"intensities", "labels"}, optional
            What X are, if not images as the model was fitted to: other intensities, or label maps,
            on the same grid (files may be on others).
        interpolation : {"linear", "nearest"}
            Linear by default, which for label maps gives the most probable label.
        modulate : bool
            Whether to keep amounts: values are multiplied by the change of volume, and the sum
            stays the same. False by default, and for label maps.
        fwhm : float
            Width of a Gaussian to smooth with, in mm (voxels without affine); 0, none, by default.
        poses : array of shape (N, P), optional
            Of the images; needed with `z` if the model was fitted with `align`.
        residuals : array of shape (N, d, *space), optional
            Residual velocities of the images. Without `z` they are found where the model knows
            residual warps; with `z`, none by default.

        Returns
        -------
        array of shape (N, ...), or list of Mesh
            In the layout of `inverse_transform`; label maps as integers.
        """
        if modulate and kind == LABELS:
            raise ArgumentError("modulate keeps amounts, and label maps have none: leave it out")
        if is_mesh(X):
            latents = self._latents_of_rows(z)
            placed = self._poses_of_rows(poses, len(latents))
            bent = self._checked_residuals(residuals, len(latents))
            self._check_warps(latents, bent)
            return self.template_space_.meshes_to(as_meshes(X), latents, placed, bent)
        images = self._images_of_kind(X, kind, needs_latents=z is None)
        if z is None:
            encoded = self.encode(images, residual=self.settings_.has_residuals)
            latents, placed, bent = encoded.latents, encoded.poses, encoded.residuals
        else:
            latents = self._latents_of_rows(z)
            placed = self._poses_of_rows(poses, len(latents))
            bent = self._checked_residuals(residuals, len(latents))
            self._check_warps(latents, bent)
        brought = self.template_space_.images_to(
            *(images, latents),
            interpolation=interpolation,
            modulate=modulate,
            fwhm=fwhm,
            poses=placed,
            residuals=bent,
        )
        return self._in_layout_of(images, kind, brought)

    def from_template(
        self,
        X: Images | Mesh | Sequence[Mesh],  # noqa: N803
        z: ArrayLike,
        *,
        kind: str | None = None,
        interpolation: str = "linear",
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Any:
        """Return images, label maps, points or meshes of the template in the spaces of images.

        Parameters
        ----------
        X : images, or meshes
            In the space of the template: one for all, or one for each row of `z`.
        z : array of shape (N, K)
            Latents of the images.
        kind, interpolation, poses, residuals
            As for `to_template`.

        Returns
        -------
        array of shape (N, ...), or list of Mesh
        """
        latents = self._latents_of_rows(z)
        placed = self._poses_of_rows(poses, len(latents))
        bent = self._checked_residuals(residuals, len(latents))
        self._check_warps(latents, bent)
        if is_mesh(X):
            return self.template_space_.meshes_from(as_meshes(X), latents, placed, bent)
        images = self._images_of_kind(X, kind)
        brought = self.template_space_.images_from(
            images, latents, interpolation=interpolation, poses=placed, residuals=bent
        )
        return self._in_layout_of(images, kind, brought)

    def jacobians(
        self,
        z: ArrayLike,
        *,
        log: bool = False,
        fwhm: float = 0.0,
        residuals: ArrayLike | None = None,
    ) -> Array:
        """Return how much larger images are than the template, everywhere in it, (N, *space).

        These are the Jacobian determinants of the warps from the template to images: 2 where an
        image is twice as large.

        Parameters
        ----------
        z : array of shape (N, K)
            Latents of the images.
        log : bool
            Whether to return logarithms; False by default.
        fwhm : float
            Width of a Gaussian to smooth with, in mm (voxels without affine); 0, none, by default.
        residuals : array of shape (N, d, *space), optional
            Residual velocities of the images; none by default.
        """
        latents = self._latents_of_rows(z)
        bent = self._checked_residuals(residuals, len(latents))
        self._check_warps(latents, bent)
        space = self.template_space_
        return space.volume_changes(latents, log=log, fwhm=fwhm, residuals=bent)[:, 0]

    def surface(self, z: ArrayLike, label: int | None = None, level: float | None = None) -> Mesh:
        """Return the closed surface of what an image with latents z shows, as triangles.

        Parameters
        ----------
        z : array of shape (K,)
        label : int, optional
            Of label maps: the surface is where this label stops being the most probable. By default
            all labels but the first.
        level : float, optional
            Of other images: the surface is where the first channel has this value; by default 0.5,
            which intensities must be given.

        Returns
        -------
        Mesh
            In mm, or voxels without affine.
        """
        latents = self._latents_of_rows(z)[:1]
        self._check_warps(latents)
        return self.template_space_.surface(latents, label, level)

    @property
    def template_space_(self) -> TemplateSpace:
        """The space of the template: what brings images, points and meshes there and back."""
        return TemplateSpace(self.predictor_, self.image_format_, self.origin_)

    def _latents_of_rows(self, z: ArrayLike | None) -> Float64Array:
        if z is None:
            raise ValueError("z must be given: the latents of the images that these belong to")
        return self._checked_latents(np.atleast_2d(np.asarray(z, np.float64)))

    def _poses_of_rows(self, poses: ArrayLike | None, n_images: int) -> Float64Array | None:
        """Return poses (N, P), which must be given where the model has some."""
        if poses is None and self.settings_.has_poses:
            raise ValueError(
                "poses must be given with z: the model was fitted with align="
                f"{self.settings_.align!r}, and encode(X).poses are those of images"
            )
        given = None if poses is None else np.atleast_2d(np.asarray(poses, np.float64))
        return self._checked_poses(given, n_images)

    def _images_of_kind(
        self,
        X: Any,  # noqa: N803
        kind: str | None,
        *,
        needs_latents: bool = False,
    ) -> ImageCollection:
        if kind is None:
            return self.checked_images(X)
        if needs_latents:
            raise ValueError(f"z must be given with kind={kind!r}: the latents of the images")
        return self.template_space_.open(X, kind)

    def _in_layout_of(self, images: ImageCollection, kind: str | None, brought: Array) -> Array:
        """Return images (N, C, *space) as images of their kind are given by users."""
        if kind == LABELS:
            return images.format.to_labels(brought.argmax(axis=1))
        return images.format.to_user(brought)
