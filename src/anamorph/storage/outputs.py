"""Images of a model as files: on the grid of the images that it was fitted to, without margin.

- Where the images had an affine, NIfTI with that affine.
- Where they were pictures, PNG with 8 bits.
- Everything else is ``.npy``: arrays, and what a picture cannot show (probabilities of classes,
  intensities that are not from 0 to 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anamorph.images.arrays import ImageFormat
from anamorph.images.grid import Grid
from anamorph.images.readers import pictures
from anamorph.likelihoods import LIKELIHOODS
from anamorph.storage.modelfile import Origin
from anamorph.storage.replace import replacing
from anamorph.storage.volumes import write_nifti

_SLACK = 0.1  # by which the mean of images from 0 to 1 may overshoot
_WHITE = 255


@dataclass(frozen=True)
class ImageOutput:
    """How the images of a model become files.

    Attributes
    ----------
    format : ImageFormat
    origin : Origin
    is_bounded : bool
        Whether intensities are from 0 to 1, so that pictures can show them.
    as_probabilities : bool
        Whether categorical images are written as probabilities of classes, and not as the number
        of the most probable class.
    """

    format: ImageFormat
    origin: Origin
    is_bounded: bool
    as_probabilities: bool = False

    @property
    def suffix(self) -> str:
        """What names of files end with."""
        if self.origin.affine is not None:
            return ".nii.gz"
        can_be_shown = self._writes_labels or (
            self.is_bounded and not LIKELIHOODS[self.format.likelihood].holds_classes
        )
        was_picture = self.origin.suffix in pictures.SUFFIXES
        return ".png" if was_picture and can_be_shown else ".npy"

    def write(self, path: Path, image: NDArray[np.floating]) -> None:
        """Write an image as the model gives it, margin included, whole or not at all.

        Parameters
        ----------
        path : Path
            Ends with `suffix`.
        image : array of shape (*space), or with channels where the user has them
        """
        voxels = self._without_margin(self._channels_last(image))
        if self._writes_labels:
            voxels = voxels.argmax(axis=-1).astype(np.uint8)
        if self.suffix == ".png":
            _write_picture(path, voxels)
        elif self.suffix == ".npy":
            _write_array(path, self._channels_as_given(voxels))
        else:
            n_dims = len(self.format.space)
            if n_dims == 2:  # to NIfTI, what follows two axes in space is a third one
                voxels = np.expand_dims(voxels, 2)
            grid = Grid(self.format.space, self.origin.affine).padded(-self.origin.pad)
            write_nifti(path, voxels, grid.affine)

    @property
    def _writes_labels(self) -> bool:
        return LIKELIHOODS[self.format.likelihood].holds_classes and not self.as_probabilities

    @property
    def _channel_axis(self) -> int | None:
        """Axis of channels in one image, as the model gives it."""
        if self.format.holds_labels:
            return len(self.format.space)
        return None if self.format.channel_axis is None else self.format.channel_axis - 1

    def _channels_last(self, image: NDArray[Any]) -> NDArray[Any]:
        return image if self._channel_axis is None else np.moveaxis(image, self._channel_axis, -1)

    def _channels_as_given(self, voxels: NDArray[Any]) -> NDArray[Any]:
        if self._channel_axis is None or self._writes_labels:
            return voxels
        return np.moveaxis(voxels, -1, self._channel_axis)

    def _without_margin(self, voxels: NDArray[Any]) -> NDArray[Any]:
        pad = self.origin.pad
        return voxels[tuple(slice(pad, length - pad) for length in self.format.space)]


def has_bounded_intensities(likelihood: str, mean: NDArray[np.floating]) -> bool:
    """Tell from the mean (C, *space) of a model whether its images have values from 0 to 1."""
    kind = LIKELIHOODS[likelihood]
    if kind.value_range == (0, 1):
        return True
    return kind.scales_integers and bool(mean.min() >= -_SLACK and mean.max() <= 1 + _SLACK)


def _write_picture(path: Path, pixels: NDArray[Any]) -> None:
    """Write labels as they are, and intensities from 0 to 1 with 8 bits."""
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(pixels, 0, 1) * _WHITE).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    with replacing(path) as temporary:
        Image.fromarray(pixels).save(temporary)


def _write_array(path: Path, voxels: NDArray[Any]) -> None:
    with replacing(path) as temporary:
        np.save(temporary, np.ascontiguousarray(voxels), allow_pickle=False)
