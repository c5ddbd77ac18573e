"""Images with a hidden box each, to compare what a model predicts there with the truth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import ArrayImages
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages


@dataclass(frozen=True)
class Boxes:
    """One box of voxels per image, all of one size, which wraps around at the edges.

    Attributes
    ----------
    space : tuple of int
        Shape of the images.
    sides : tuple of int
        Sides of every box, in voxels.
    corners : array of shape (N, d)
        Lowest voxel of the box in each image.
    """

    space: tuple[int, ...]
    sides: tuple[int, ...]
    corners: NDArray[np.intp]

    @classmethod
    def draw(
        cls, n_images: int, space: tuple[int, ...], fraction: float, random_state: int
    ) -> Boxes:
        """Place boxes at random.

        Parameters
        ----------
        n_images : int
        space : tuple of int
        fraction : float
            Share of the voxels to hide; boxes have the proportions of the image.
        random_state : int
            Seed.

        Returns
        -------
        Boxes
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must be between 0 and 1, got {fraction!r}")
        generator = np.random.default_rng(random_state)
        corners = generator.integers(0, space, (n_images, len(space)))
        return cls(space, _nearest_sides(space, fraction), corners.astype(np.intp))

    def mask(self, part: slice = slice(None)) -> NDArray[np.bool_]:
        """Return the voxels in the boxes of some images, (n, *space); of all by default."""
        corners = self.corners[part]
        inside = np.ones((len(corners), *self.space), bool)
        for axis, (length, side) in enumerate(zip(self.space, self.sides, strict=True)):
            along = (np.arange(length) - corners[:, axis, None]) % length < side
            shape = [1] * len(self.space)
            shape[axis] = length
            inside &= along.reshape(len(corners), *shape)
        return inside


class HiddenImages:
    """A collection of images in which a box of each is read as missing.

    Parameters
    ----------
    images : ArrayImages or FileImages
    boxes : Boxes
        One per image.

    Attributes
    ----------
    format, identities, voxel_size, affine, pad, suffix
        Those of the images.
    """

    def __init__(self, images: ArrayImages | FileImages, boxes: Boxes) -> None:
        self._images, self._boxes = images, boxes
        self.format, self.identities = images.format, images.identities
        self.voxel_size, self.affine = images.voxel_size, images.affine
        self.pad, self.suffix = images.pad, images.suffix

    @property
    def typical(self) -> float | None:
        """Typical intensity of the images, known once they were checked for a fit."""
        return self._images.typical

    def __len__(self) -> int:
        return len(self._images)

    def name(self, n: int) -> str:
        """Return what to call an image in an error message."""
        return self._images.name(n)

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing or hidden."""
        return self._masked(part, self._boxes.mask(part))

    def read_hidden(self, part: slice) -> NDArray[np.float32]:
        """Return the hidden voxels, (n, C, *space), NaN elsewhere and where they are missing."""
        return self._masked(part, ~self._boxes.mask(part))

    def subset(self, numbers: Sequence[int]) -> HiddenImages:
        """Return a collection of some of the images, each with its box."""
        boxes = replace(self._boxes, corners=self._boxes.corners[list(numbers)])
        return HiddenImages(self._images.subset(numbers), boxes)

    def check(self, *, for_fit: bool, usual: float | None = None) -> None:
        """Read every image once, and raise an ImageError if one cannot be used.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then.
        usual : float, optional
            Typical intensity of the images of a model; by default it is not compared.
        """
        self._images.check(for_fit=for_fit, usual=usual)
        for n in range(len(self)):
            if np.isnan(self.read(slice(n, n + 1))).all():
                raise ImageError(
                    f"{self.name(n)} has nothing to see outside its hidden box: hide "
                    "a smaller fraction, or leave it out"
                )

    def unscaled(self, n: int, image: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return a scaled image (C, *space) in the intensities of image n."""
        return self._images.unscaled(n, image)

    def _masked(self, part: slice, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        return np.where(mask[:, None], np.float32(np.nan), self._images.read(part))


def _nearest_sides(space: tuple[int, ...], fraction: float) -> tuple[int, ...]:
    """Return the whole sides, in the proportions of the image, nearest to the fraction."""
    ideal = [length * fraction ** (1 / len(space)) for length in space]
    choices = [(max(1, math.floor(side)), math.ceil(side)) for side in ideal]
    volume = fraction * math.prod(space)
    return min(itertools.product(*choices), key=lambda sides: abs(math.prod(sides) - volume))
