"""Warps near some latents, as a linear function of the latents: no shooting finds them.

    d(z) = d(c) + D (z - c),   column k of D being what latent k does to the displacement of psi

Within a few standard deviations of a posterior, geodesics bend little. What bends ln p(f | z) there
are the kinks of linear interpolation between voxels and the likelihood, and a model with such warps
has both. D is found by one shooting for each latent of shape, a tenth of a standard deviation away,
and learns from every shooting that follows: how far images moved by a step s (Broyden's update),

    D += (d(c + s) - d(c) - D s) s'H / s'H s,

and, where adjoint shooting tells the exact slope g along the latents, given the force f on the
displacement, how steep the way is (its transpose):

    D += f (g - D'f)' / f'f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.typing import Array, Float64Array, IntArray


@dataclass(frozen=True)
class StraightPath:
    """What stands for a geodesic where warps are linear.

    Attributes
    ----------
    displacement : (N, d, *space)
    """

    displacement: Array


@dataclass(frozen=True)
class Tangents:
    """Displacements of some images as a linear function of their M latents of shape.

    Attributes
    ----------
    centre : (N, M)
        c.
    displacement : (N, d, *space)
        d(c).
    effects : (N, M, d, *space)
        D.
    """

    centre: Float64Array
    displacement: Array
    effects: Array

    @classmethod
    def empty(cls, latents: Float64Array, displacement: Array) -> Tangents:
        """Return room for the tangents at latents (N, M) with displacements (N, d, *space)."""
        n_images, *field = displacement.shape
        effects = np.zeros_like(displacement, shape=(n_images, latents.shape[1], *field))
        return cls(latents.copy(), displacement.copy(), effects)

    def only(self, which: IntArray) -> Tangents:
        """Return those of some of the images."""
        if len(which) == len(self.centre):  # in their order: nothing to copy
            return self
        return Tangents(self.centre[which], self.displacement[which], self.effects[which])

    def path(self, latents: Float64Array) -> StraightPath:
        """Return where latents (N, M) lead."""
        step = (latents - self.centre).astype(self.effects.dtype)
        moved = (step[:, None] @ self._rows())[:, 0]
        return StraightPath(self.displacement + moved.reshape(self.displacement.shape))

    def slopes(self, force: Array) -> Float64Array:
        """Return D'f, (N, M), of forces (N, d, *space) on the displacement."""
        found = (self._rows() @ force.reshape(len(force), -1, 1))[..., 0]
        slopes: Float64Array = found.astype(np.float64)
        return slopes

    def turn(self, inverse: Float64Array) -> None:
        """Let effects of steps along axes (the columns of matrices, given their inverse) be D."""
        turned = inverse.swapaxes(1, 2).astype(self.effects.dtype) @ self._rows()
        self.effects[:] = turned.reshape(self.effects.shape)

    def learn_step(
        self, images: IntArray, step: Float64Array, moved: Array, weights: Float64Array
    ) -> None:
        """Let steps (n, M) of some images move them as (n, d, *space) says.

        Parameters
        ----------
        images : (n,) integers
        step : (n, M)
        moved : (n, d, *space)
            How the displacement changed.
        weights : (n, M)
            H s, by which directions count as alike.
        """
        length = (step * weights).sum(axis=1)
        share = weights / np.where(length > 0, length, 1.0)[:, None]
        expected = (step[:, None].astype(moved.dtype) @ self._rows(images))[:, 0]
        missed = moved.reshape(expected.shape) - expected
        self._add(images, share[..., None].astype(moved.dtype) * missed[:, None])

    def learn_slope(self, images: IntArray, force: Array, missed: Float64Array) -> None:
        """Let slopes D'f of some images, given f, (n, d, *space), be larger by (n, M)."""
        rows = force.reshape(len(force), -1)
        squares = np.square(rows).sum(axis=1, dtype=np.float64)
        share = missed / np.where(squares > 0, squares, 1.0)[:, None]
        self._add(images, share[..., None].astype(rows.dtype) * rows[:, None])

    def move_to(self, images: IntArray, latents: Float64Array, displacement: Array) -> None:
        """Let some images have another centre (n, M), with its displacement (n, d, *space)."""
        self.centre[images] = latents
        self.displacement[images] = displacement

    def replace(self, images: IntArray, others: Tangents) -> None:
        """Let some images have other tangents."""
        self.move_to(images, others.centre, others.displacement)
        self.effects[images] = others.effects

    def _rows(self, images: IntArray | slice = slice(None)) -> Array:
        effects = self.effects[images]
        return effects.reshape(*effects.shape[:2], -1)

    def _add(self, images: IntArray, change: Array) -> None:
        self.effects[images] += change.reshape(len(images), *self.effects.shape[1:])


def tangent_axes(hessian: Float64Array, shape: slice) -> Float64Array:
    """Return directions of latents of shape, (N, M, M), one standard deviation long.

    Parameters
    ----------
    hessian : (N, K, K)
        With the prior.
    shape : slice
        Which of the K latents move something.
    """
    covariance = np.linalg.inv(hessian)[:, shape, shape]
    axes: Float64Array = np.linalg.cholesky(covariance)
    return axes

