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

import math
from dataclasses import dataclass
from typing import cast

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
        return StraightPath(self.displacement + self._moved(latents - self.centre))

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
        """Let steps (n, M) of some images change their displacement by (n, d, *space).

        Parameters
        ----------
        images : (n,) integers
        step : (n, M)
            s.
        moved : (n, d, *space)
            d(c + s) - d(c).
        weights : (n, M)
            H s.
        """
        length = (step * weights).sum(axis=1, keepdims=True)
        share = weights / np.where(length > 0, length, 1.0)
        self._add(images, share, moved - self.only(images)._moved(step))

    def learn_slope(self, images: IntArray, force: Array, missed: Float64Array) -> None:
        """Let slopes D'f of some images, given f, (n, d, *space), be larger by (n, M)."""
        squares = np.square(force.reshape(len(force), -1)).sum(axis=1, dtype=np.float64)
        share = missed / np.where(squares > 0, squares, 1.0)[:, None]
        self._add(images, share, force)

    def move_to(self, images: IntArray, latents: Float64Array, displacement: Array) -> None:
        """Let some images have another centre (n, M), with its displacement (n, d, *space)."""
        self.centre[images] = latents
        self.displacement[images] = displacement

    def replace(self, images: IntArray, others: Tangents) -> None:
        """Let some images have other tangents."""
        self.move_to(images, others.centre, others.displacement)
        self.effects[images] = others.effects

    def _moved(self, step: Float64Array) -> Array:
        """Return D s, (N, d, *space), of steps (N, M)."""
        moved = step[:, None].astype(self.effects.dtype) @ self._rows()
        return moved.reshape(self.displacement.shape)

    def _rows(self) -> Array:
        number = math.prod(self.effects.shape[2:])  # -1 cannot tell where there are no images
        return self.effects.reshape(*self.effects.shape[:2], number)

    def _add(self, images: IntArray, share: Float64Array, change: Array) -> None:
        """Add shares (n, M) of a change (n, d, *space) to D of some images."""
        scaled = share.astype(change.dtype).reshape(*share.shape, *(1,) * (change.ndim - 1))
        for m in range(share.shape[1]):  # one latent at a time takes little memory
            self.effects[images, m] += scaled[:, m] * change


def posterior_axes(hessian: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return directions (N, K, K), as columns, of one standard deviation, and their inverse.

    Parameters
    ----------
    hessian : (N, K, K)
        H, with the prior: the axes A have A A' = H^-1.
    """
    inverse = cast(Float64Array, np.linalg.cholesky(hessian)).swapaxes(1, 2)
    return cast(Float64Array, np.linalg.inv(inverse)), inverse
