"""Image files that a model writes: on the grid of the images it was fitted to, without margin.

- NIfTI with the affine of the images, if they had one.
- PNG with 8 bits, if they were pictures.
- ``.npy`` for everything else: arrays, and values that a picture cannot show (probabilities of
  classes, intensities outside 0 to 1).
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.spatialimages import HeaderDataError
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from anamorph.images.arrays import ImageFormat
from anamorph.images.errors import ImageError, short_reason
from anamorph.images.grid import Affine, Grid, slices_inside
from anamorph.images.readers import nifti, pictures
from anamorph.images.readers.resample import resample
from anamorph.likelihoods import LIKELIHOODS
from anamorph.storage.modelfile import Origin
from anamorph.storage.replace import replacing

_SLACK = 0.1  # how far the mean of images from 0 to 1 may leave that range
_WHITE = 255


@dataclass(frozen=True)
class ImageOutput:
    """How to write the images of a model.

    Attributes
    ----------
    format : ImageFormat
    origin : Origin
    is_bounded : bool
        Whether intensities are from 0 to 1, which pictures can show.
    as_probabilities : bool
        Whether to write probabilities of classes instead of the number of the most probable
        class; False by default.
    """

    format: ImageFormat
    origin: Origin
    is_bounded: bool
    as_probabilities: bool = False

    @property
    def suffix(self) -> str:
        """Suffix of the files, which decides their format."""
        if self.origin.affine is not None:
            return ".nii.gz"
        can_be_shown = self._writes_labels or (
            self.is_bounded and not LIKELIHOODS[self.format.likelihood].holds_classes
        )
        was_picture = self.origin.suffix in pictures.SUFFIXES
        return ".png" if was_picture and can_be_shown else ".npy"

    def write(self, path: Path, image: NDArray[np.floating], onto: Grid | None = None) -> None:
        """Write an image of the model without its margin, completely or not at all.

        Parameters
        ----------
        path : Path
            Ends with `suffix`.
        image : array of shape (C, *space)
            On the grid of the model, margin included.
        onto : Grid, optional
            Grid to bring the image onto, with an affine; by default that of the model. What lies
            outside the model's grid is NaN, or the first class.
        """
        grid = self.origin.inner_grid(self.format.space)
        voxels = image[:, *slices_inside(grid, self.origin.pad)]
        if onto is not None and onto.difference(grid) is not None:
            voxels = resample(voxels, grid, onto)
            if self._writes_labels:
                voxels = np.nan_to_num(voxels)
            grid = onto
        if self._writes_labels:
            voxels = self.format.to_labels(voxels.argmax(axis=0))
        elif self.suffix == ".npy":
            voxels = self.format.to_user(voxels[None])[0]
        elif self.format.channel_axis is not None or self.format.holds_labels:
            voxels = np.moveaxis(voxels, 0, -1)
        else:
            voxels = voxels[0]
        if self.suffix == ".png":
            _write_picture(path, voxels)
        elif self.suffix == ".npy":
            _write_array(path, voxels)
        else:
            if len(grid.space) == 2:  # NIfTI has channels after a third axis in space
                voxels = np.expand_dims(voxels, 2)
            write_nifti(path, voxels, grid.affine)

    @property
    def _writes_labels(self) -> bool:
        return LIKELIHOODS[self.format.likelihood].holds_classes and not self.as_probabilities


def has_bounded_intensities(likelihood: str, mean: NDArray[np.floating]) -> bool:
    """Tell from the mean (C, *space) of a model whether its images have values from 0 to 1."""
    kind = LIKELIHOODS[likelihood]
    if kind.value_range == (0, 1):
        return True
    return kind.scales_integers and bool(mean.min() >= -_SLACK and mean.max() <= 1 + _SLACK)


def _write_picture(path: Path, pixels: NDArray[Any]) -> None:
    """Write labels unchanged, and intensities from 0 to 1 with 8 bits."""
    if pixels.dtype.kind == "f":
        pixels = np.rint(np.clip(pixels, 0, 1) * _WHITE).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    with replacing(path) as temporary:
        Image.fromarray(pixels).save(temporary)


def _write_array(path: Path, voxels: NDArray[Any]) -> None:
    with replacing(path) as temporary:
        np.save(temporary, np.ascontiguousarray(voxels), allow_pickle=False)


def write_nifti(path: str | os.PathLike[str], image: ArrayLike, affine: Affine | None) -> None:
    """Write an image to a NIfTI-1 file, completely or not at all.

    Parameters
    ----------
    path : path
        Ends with .nii or .nii.gz.
    image : array of shape (*space) or (x, y, z, C)
        May contain NaN. Written as float32 if it holds floats.
    affine : array of shape (4, 4), or None
        From voxels to mm; None for the identity.

    Raises
    ------
    ImageError
        If NIfTI cannot hold the image.
    WriteError
        If the file cannot be written.
    """
    path = Path(path)
    if not path.name.lower().endswith(nifti.SUFFIXES):
        raise ImageError(f"{path} must end with .nii or .nii.gz")
    voxels = np.asarray(image)
    if voxels.dtype.kind == "b":
        voxels = voxels.astype(np.uint8)
    elif voxels.dtype.kind == "f":
        voxels = voxels.astype(np.float32)
    try:
        volume = nib.Nifti1Image(voxels, np.eye(4) if affine is None else affine)
        volume.header.set_xyzt_units("mm")
    except HeaderDataError as error:
        raise ImageError(f"{path} cannot be written: {short_reason(error)}") from None
    with replacing(path, ".nii.gz" if path.name.lower().endswith(".gz") else ".nii") as temporary:
        nib.save(volume, temporary)
